"""Whether a command on a page would be taken: by parser, chart, Makefile, Dockerfile or script.

Nothing is built, installed or sent anywhere.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import re
import runpy
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import yaml
from generated_specs import find_misfits
from pages import ROOT, Command

from balancedstream import cli
from balancedstream.errors import InvalidInputError
from balancedstream.launch.agent_options import read_options
from balancedstream.launch.policies import read_policy
from balancedstream_operator.api.resource import GROUP, KIND
from balancedstream_operator.api.spec import read_spec
from balancedstream_operator.kubectl import main as plugin

CRD = yaml.safe_load((ROOT / "crds" / "balancedstreams.yaml").read_text("utf-8"))
CHART = ROOT / "charts" / "balancedstream"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]

_OURS = re.compile(
    r"(?:\./)?((?:benchmarks|charts|crds|docker|docs|examples|krew|operator|runtime|spark-plugin"
    r"|tests)/[\w./-]+)"
)
_BUILT = re.compile(r"spark-plugin\.jar$")
_OWN_PREFIX = "spark.balancedstream."
_KUBECTL = {
    *("annotate", "apply", "create", "delete", "describe", "drain", "get", "label", "logs"),
    *("patch", "port-forward", "scale", "taint", "wait"),
}
_KIND = {("create", "cluster"), ("load", "docker-image"), ("delete", "cluster")}

_VARIABLE = re.compile(r"[A-Z_]+=")


class _ParsedError(Exception):
    """A script's arguments are right; it need not go on."""


def find_faults(command: Command) -> Iterator[str]:
    """What is wrong with a command; none if it would be taken."""
    program, *arguments = _without_variables(command.words)
    yield from _find_lost_files(command.words)
    yield from _find_wrong_settings(_settings_of(arguments))
    check = _CHECKS.get(program)
    if check:
        yield from check(arguments)


def is_known(command: Command) -> bool:
    """Whether the program of a command is one that is checked."""
    return program_of(command) in _CHECKS


def program_of(command: Command) -> str:
    """The program that a command starts; `export` where it only sets a variable."""
    program = _without_variables(command.words)[0]
    return "export" if _VARIABLE.match(program) else program


def find_settings_faults(settings: Mapping[str, str]) -> Iterator[str]:
    """What the plugin's agent says of settings of ours."""
    yield from _find_wrong_settings(settings)


def find_manifest_faults(manifest: Any) -> Iterator[str]:
    """What is wrong with a manifest: a BalancedStream, or another object with settings of ours."""
    kind = manifest.get("kind")
    if kind == KIND:
        schema = CRD["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        version = CRD["spec"]["versions"][0]["name"]
        if manifest.get("apiVersion") != f"{GROUP}/{version}":
            yield f"apiVersion: {manifest.get('apiVersion')}"
        yield from find_misfits(schema["properties"]["spec"], manifest["spec"], "spec")
        yield from find_unknown(schema["properties"]["spec"], manifest["spec"], "spec")
        try:
            read_spec(manifest["spec"])
        except InvalidInputError as error:
            yield str(error)
    elif kind is None and set(manifest) == {"spec"}:  # a part of a BalancedStream
        spec = CRD["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
        yield from find_unknown(spec, manifest["spec"], "spec")
        given = {**spec, "required": ()}
        yield from find_misfits(given, manifest["spec"], "spec")
    elif kind is None and set(manifest) <= set(_values()):
        yield from _find_wrong_values(manifest)
    elif kind is None:
        try:
            read_policy_text(manifest)
        except InvalidInputError as error:
            yield f"policy: {error}"
    yield from _find_inside(manifest)


def read_policy_text(content: Mapping[str, Any]) -> None:
    """Reads a policy as from a file.

    Raises:
        InvalidInputError: it is none.
    """
    flat = {
        f"{section}.{knob}": str(value)
        for section, knobs in content.items()
        for knob, value in (knobs.items() if isinstance(knobs, dict) else [("", knobs)])
    }
    read_policy(None, flat)


def find_unknown(schema: Mapping[str, Any], value: Any, path: str) -> Iterator[str]:
    """Fields that a schema does not have, which the API server would drop or refuse."""
    if isinstance(value, dict) and "properties" in schema:
        for name, inner in value.items():
            within = schema["properties"].get(name)
            if within is None:
                yield f"{path}.{name}: there is no such field"
            else:
                yield from find_unknown(within, inner, f"{path}.{name}")
    elif isinstance(value, list) and isinstance(schema.get("items"), dict):
        for inner in value:
            yield from find_unknown(schema["items"], inner, f"{path}[]")


def _find_inside(value: Any) -> Iterator[str]:
    """Settings of ours, and commands of ours, anywhere in a manifest."""
    if isinstance(value, dict):
        yield from _find_wrong_settings({k: str(v) for k, v in value.items() if isinstance(k, str)})
        for inner in value.values():
            yield from _find_inside(inner)
    elif isinstance(value, list):
        if value[:1] == ["balancedstream"]:
            yield from _check_balancedstream([str(word) for word in value[1:]])
        for inner in value:
            yield from _find_inside(inner)


def _without_variables(words: Sequence[str]) -> list[str]:
    """A command without the variables that are set before it."""
    rest = list(words)
    while len(rest) > 1 and _VARIABLE.match(rest[0]):
        rest.pop(0)
    return rest


def _find_lost_files(words: Sequence[str]) -> Iterator[str]:
    for word in words:
        match = _OURS.fullmatch(word.rpartition("=")[2])
        if match and not (ROOT / match[1]).exists() and not _BUILT.search(match[1]):
            yield f"{match[1]}: there is no such file"


def _settings_of(arguments: Sequence[str]) -> dict[str, str]:
    """Spark settings in the arguments of a command, also in a variable for PySpark."""
    joined = " ".join(arguments)
    return dict(re.findall(r"--conf[ =](spark[\w.]+)=(\S+)", joined))


def _find_wrong_settings(settings: Mapping[str, str]) -> Iterator[str]:
    own = {k: v for k, v in settings.items() if k.startswith(_OWN_PREFIX)}
    own.pop("spark.balancedstream.policy", None)  # a file of the reader's
    try:
        read_options(own)
    except InvalidInputError as error:
        yield str(error)


def _parse(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> Iterator[str]:
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
        try:
            parser.parse_args(arguments)
        except SystemExit as end:
            if end.code:
                yield said.getvalue().strip().splitlines()[-1]


def _check_balancedstream(arguments: list[str]) -> Iterator[str]:
    yield from _parse(cli._build_parser(), arguments)


def _check_kubectl(arguments: list[str]) -> Iterator[str]:
    if arguments[:1] == ["krew"]:
        return
    if arguments[:1] == ["bst"]:
        yield from _parse(plugin._build_parser(), arguments[1:])
        return
    verb = next((word for word in arguments if word in _KUBECTL), None)
    if verb is None:
        yield f"kubectl {' '.join(arguments)}: none of the commands that the pages use"
        return
    for word in arguments:
        if word.startswith("balancedstream.io/"):
            key = re.split(r"[=-]", word)[0].partition("/")[2]
            if key not in _annotations():
                yield f"{word}: there is no such annotation"
    if verb == "apply":
        for word in arguments:
            if _OURS.fullmatch(word) and (ROOT / word).is_file():
                for manifest in yaml.safe_load_all((ROOT / word).read_text("utf-8")):
                    yield from find_manifest_faults(manifest)
    if verb == "scale" and "bst" in arguments and "scale" not in _subresources():
        yield "bst cannot be scaled"


def _annotations() -> set[str]:
    sources = (ROOT / "operator").rglob("*.py")
    text = "".join(path.read_text("utf-8") for path in sources)
    return set(re.findall(r"(?:balancedstream\.io|\{GROUP\})/(\w+)", text))


def _subresources() -> set[str]:
    return set(CRD["spec"]["versions"][0].get("subresources", {}))


def _check_helm(arguments: list[str]) -> Iterator[str]:
    if f"charts/{CHART.name}" not in arguments:
        return  # a chart of others, with values of its own
    for number, word in enumerate(arguments):
        if word in {"--set", "--set-string", "--set-json"}:
            for part in re.split(r",(?=[\w.]+=)", arguments[number + 1]):
                yield from find_unknown_value(part.partition("=")[0])
        elif word in {"-f", "--values"} and (ROOT / arguments[number + 1]).is_file():
            values = yaml.safe_load((ROOT / arguments[number + 1]).read_text("utf-8"))
            yield from _find_wrong_values(values)


def _values() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((CHART / "values.schema.json").read_text("utf-8"))
    return dict(found["properties"])


def _resolve(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    while "$ref" in schema:
        whole = json.loads((CHART / "values.schema.json").read_text("utf-8"))
        schema = whole["definitions"][schema["$ref"].rpartition("/")[2]]
    return schema


def find_unknown_value(path: str) -> Iterator[str]:
    schema: Mapping[str, Any] = {"properties": _values()}
    for name in re.split(r"(?<!\\)\.", re.sub(r"\[\d+\]", "", path)):
        schema = _resolve(schema)
        if name in schema.get("properties", {}):
            schema = schema["properties"][name]
        elif schema.get("additionalProperties", "properties" not in schema):
            return
        else:
            yield f"{path}: the chart has no such value"
            return


def _find_wrong_values(values: Mapping[str, Any], path: str = "") -> Iterator[str]:
    for name, value in values.items():
        here = f"{path}{name}"
        yield from find_unknown_value(here)
        if isinstance(value, dict):
            yield from _find_wrong_values(value, f"{here}.")


def _check_make(arguments: list[str]) -> Iterator[str]:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    targets = set(re.findall(r"^([\w./%-]+):(?!=)", makefile, re.M))
    for target in arguments:
        if "=" in target:
            name = target.partition("=")[0]
            if not re.search(rf"\$\{{?\(?.*\b{name}\b", makefile):
                yield f"{target}: the Makefile reads no such variable"
        elif not any(re.fullmatch(known.replace("%", ".+"), target) for known in targets):
            yield f"make {target}: there is no such target"


def _check_pip(arguments: list[str]) -> Iterator[str]:
    for word in arguments:
        match = re.fullmatch(r"\.(?:\[([\w,]+)\])?", word)
        if match:
            for extra in filter(None, (match[1] or "").split(",")):
                if extra not in PROJECT["optional-dependencies"]:
                    yield f"{word}: there is no extra {extra}"
        elif word.startswith("balancedstream"):
            yield f"pip install {word}: nothing is published; install from a clone"


def _check_python(arguments: list[str]) -> Iterator[str]:
    if arguments[:1] == ["-m"] and len(arguments) > 1:
        module, *rest = arguments[1:]
        yield from _CHECKS.get(module, _check_module(module))(rest)
        return
    script, *rest = arguments
    if not _OURS.fullmatch(script):
        return
    yield from find_script_faults(ROOT / script, rest)


def _check_module(module: str) -> Callable[[list[str]], Iterator[str]]:
    def check(arguments: list[str]) -> Iterator[str]:
        file = module.replace(".", "/")
        places = [ROOT / base / f"{file}.py" for base in ("runtime", "operator")]
        if not any(place.exists() for place in places) and module not in {"build", "twine"}:
            yield f"python -m {module}: there is no such module"

    return check


def find_script_faults(script: Path, arguments: Sequence[str]) -> Iterator[str]:
    """What the parser of a script of ours says of its arguments; the script goes no further."""
    if "parse_args" not in _text_around(script):
        return
    parse = argparse.ArgumentParser.parse_args

    def stop(self: argparse.ArgumentParser, *given: Any, **more: Any) -> None:
        parse(self, *given, **more)
        raise _ParsedError

    # Several examples have a module of the same name, and another test may have imported one.
    beside = {file.stem for file in script.parent.glob("*.py")}
    hidden = {name: sys.modules.pop(name) for name in beside & sys.modules.keys()}
    argv, path, modules = sys.argv, list(sys.path), set(sys.modules)
    said = io.StringIO()
    argparse.ArgumentParser.parse_args = stop  # type: ignore[method-assign,assignment]
    sys.argv = [str(script), *arguments]
    sys.path.insert(0, str(script.parent))
    try:
        with contextlib.redirect_stderr(said):
            runpy.run_path(str(script), run_name="__main__")
        yield f"{script.name}: it ended without reading its arguments"
    except _ParsedError:
        pass
    except SystemExit:
        yield said.getvalue().strip().splitlines()[-1]
    finally:
        argparse.ArgumentParser.parse_args = parse  # type: ignore[method-assign]
        sys.argv, sys.path[:] = argv, path
        for name in set(sys.modules) - modules:
            file = getattr(sys.modules[name], "__file__", None) or ""
            if file.startswith(str(script.parent)):
                del sys.modules[name]
        sys.modules.update(hidden)


def _text_around(script: Path) -> str:
    """A script, with the harness that reads the arguments of a benchmark."""
    text = script.read_text("utf-8")
    for harness in ("harness", "shuffle_simulation"):
        if harness in text:
            text += "".join(
                p.read_text("utf-8") for p in (ROOT / "benchmarks" / harness).glob("*.py")
            )
    return text


def _check_pytest(arguments: list[str]) -> Iterator[str]:
    sources = [*(ROOT / "tests").rglob("conftest.py"), ROOT / "tests" / "common" / "seeds.py"]
    added = "".join(path.read_text("utf-8") for path in sources)
    for word in arguments:
        option = word.partition("=")[0]
        if option.startswith("--") and f'"{option}"' not in added:
            yield f"pytest {option}: no test has this option"


def _check_docker(arguments: list[str]) -> Iterator[str]:
    if arguments[:1] != ["build"]:
        return
    folder = arguments[-1]
    file = ROOT / folder / "Dockerfile"
    if not file.is_file():
        yield f"docker build {folder}: there is no Dockerfile"
        return
    text = file.read_text("utf-8")
    for option, value in pairwise(arguments):
        if option == "--target" and not re.search(rf" AS {re.escape(value)}$", text, re.M):
            yield f"--target {value}: {folder}/Dockerfile has no such stage"
        if option == "--build-arg" and not re.search(
            rf"^ARG {value.partition('=')[0]}\b", text, re.M
        ):
            yield f"--build-arg {value}: {folder}/Dockerfile has no such argument"


def _check_kind(arguments: list[str]) -> Iterator[str]:
    if tuple(arguments[:2]) not in _KIND:
        yield f"kind {' '.join(arguments[:2])}: none of the commands that the pages use"


def _check_ci(arguments: list[str]) -> Iterator[str]:
    if not (ROOT / ".ci" / "run").exists():
        yield ".ci/run: there is no such file"


def _check_pre_commit(arguments: list[str]) -> Iterator[str]:
    if not (ROOT / ".pre-commit-config.yaml").exists():
        yield "pre-commit has no configuration"


def _check_sed(arguments: list[str]) -> Iterator[str]:
    """That what is replaced is in the file."""
    if len(arguments) == 2 and (ROOT / arguments[1]).is_file():
        script, file = arguments
        for replaced in re.findall(r"s\|([^|]+)\|", script):
            if replaced not in (ROOT / file).read_text("utf-8"):
                yield f"sed: {replaced} is not in {file}"


def _check_settings_alone(arguments: list[str]) -> Iterator[str]:
    return iter(())  # the settings of each command are checked


_CHECKS: dict[str, Callable[[list[str]], Iterator[str]]] = {
    "balancedstream": _check_balancedstream,
    "kubectl": _check_kubectl,
    "helm": _check_helm,
    "kind": _check_kind,
    "make": _check_make,
    "pip": _check_pip,
    "python": _check_python,
    "pytest": _check_pytest,
    "docker": _check_docker,
    ".ci/run": _check_ci,
    "pre-commit": _check_pre_commit,
    "sed": _check_sed,
    "spark-submit": _check_settings_alone,
    "export": _check_settings_alone,
}
