"""Builds what a release consists of, and tries it: `make release-check`.

python release/artifacts.py FOLDER

FOLDER then has the wheel and the source archive, the chart, and the archive of `kubectl bst` with
its manifest; the images are with Docker. Where Docker or Helm is missing, their part is skipped
with a line that says so, but not where CI is true.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from balancedstream.version import __version__

ROOT = Path(__file__).parents[1]
SOURCE = "https://github.com/balancedstream/balancedstream"
REGISTRY = "ghcr.io/balancedstream"
CHARTS = f"oci://{REGISTRY}/charts"
CHART = "charts/balancedstream"
JAR = "balancedstream/spark-plugin.jar"
IMAGES = {
    f"balancedstream-operator:{__version__}": ("--target", "operator"),
    f"balancedstream-spark:{__version__}": ("--target", "spark"),
    f"balancedstream-spark:{__version__}-spark3.5": (
        *("--target", "spark"),
        *("--build-arg", "SPARK=3.5"),
    ),
}
"""Options of each image's build, by its name without the registry."""

_PICTURE = re.compile(r"(!\[[^\]]*\]\()(?=docs/)")
_LINK = re.compile(r"(?<!!)(\[[^\]]*\]\()(?=[\w.-]+(?:/|\.md))")


class BrokenReleaseError(Exception):
    """Something of the release is missing, or does not run; nothing has left this machine."""


def make_links_absolute(text: str) -> str:
    """A page whose pictures and links work elsewhere, as on a package index."""
    text = _PICTURE.sub(rf"\g<1>{SOURCE}/raw/v{__version__}/", text)
    return _LINK.sub(rf"\g<1>{SOURCE}/blob/v{__version__}/", text)


def copy_tracked(folder: Path) -> None:
    """Copies what git knows, as it is here, so that nothing else gets into a release."""
    listed = _run("git", "ls-files", "-z").split("\0")
    for name in filter(None, listed):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)


def build_packages(source: Path, folder: Path) -> Path:
    """Builds wheel and source archive; returns the wheel.

    Raises:
        BrokenReleaseError: the wheel has no plugin.
    """
    readme = source / "README.md"
    readme.write_text(make_links_absolute(readme.read_text("utf-8")), "utf-8")
    uv = ROOT / ".venv-tools" / "bin" / "uv"
    # The jar is a part of what others install.
    environment = {**os.environ, "BALANCEDSTREAM_JAR_REQUIRED": "1"}
    packages = folder / "packages"
    _run(str(uv), "build", "--quiet", "--out-dir", str(packages), str(source), env=environment)
    (wheel,) = packages.glob("*.whl")
    if JAR not in zipfile.ZipFile(wheel).namelist():
        message = f"{wheel.name} has no {JAR}: install a JDK, and build it again"
        raise BrokenReleaseError(message)
    return wheel


def try_wheel(wheel: Path) -> None:
    """Installs a wheel into an empty environment, and runs its command.

    Raises:
        BrokenReleaseError: it says something else than a user should read.
    """
    with tempfile.TemporaryDirectory() as empty:
        _run(sys.executable, "-m", "venv", empty)
        pip = (f"{empty}/bin/pip", "--disable-pip-version-check", "install", "--quiet")
        _run(*pip, str(wheel))
        command = f"{empty}/bin/balancedstream"
        for option, words in (("--version", f"balancedstream {__version__}"), ("--help", "run")):
            said = _run(command, option, cwd=Path(empty))
            if words not in said:
                message = f"balancedstream {option} of the wheel does not say {words!r}: {said}"
                raise BrokenReleaseError(message)


def build_chart(helm: str, source: Path, folder: Path) -> Path:
    """Packages the chart, whose images are in the registry; returns the archive.

    Raises:
        BrokenReleaseError: it would pull another image.
    """
    chart = source / CHART
    # A chart from a clone takes images that were built beside it.
    for name, without in (
        ("values.yaml", '\n  registry: ""\n'),
        ("templates/_defaults.tpl", 'image: {registry: "", '),
    ):
        path = chart / name
        text = path.read_text("utf-8")
        with_registry = without.replace('""', REGISTRY)
        if text.count(without) != 1:
            message = f"{CHART}/{name}: there is no {without.strip()!r} to put the registry into"
            raise BrokenReleaseError(message)
        path.write_text(text.replace(without, with_registry), "utf-8")
    _run(helm, "lint", "--strict", "--quiet", str(chart))
    _run(helm, "package", str(chart), "--destination", str(folder))
    archive = folder / f"{chart.name}-{__version__}.tgz"
    image = f"{REGISTRY}/balancedstream-operator:{__version__}"
    # A Helm that was built from its sources takes itself for the companion of an old Kubernetes.
    rendered = _run(helm, "template", "x", str(archive), "--kube-version", "1.34.0")
    if f"image: {image}\n" not in rendered.replace('"', ""):
        message = f"{archive.name} does not run {image}"
        raise BrokenReleaseError(message)
    return archive


def build_images(docker: str, source: Path, base: str | None) -> list[str]:
    """Builds the images under the names that they are pushed by; returns these.

    Args:
        docker: the program.
        source: folder with the Dockerfile.
        base: image to build on; None for the tag that the Dockerfile names.
    """
    on = ("--build-arg", f"BASE={base}") if base else ()
    for name, options in IMAGES.items():
        _run(docker, "build", "--quiet", *options, *on, "--tag", f"{REGISTRY}/{name}", str(source))
    return [f"{REGISTRY}/{name}" for name in IMAGES]


def main() -> int:
    """Builds all parts; returns 0 if none is broken."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", metavar="FOLDER", type=Path, help="to make for the files")
    parser.add_argument("--base", metavar="IMAGE", help="by its digest, to build the images on")
    arguments = parser.parse_args()
    folder = arguments.folder.resolve()
    if folder.exists():
        parser.error(f"{folder} exists: what is in it may be of another release; remove it")
    folder.mkdir(parents=True)
    try:
        with tempfile.TemporaryDirectory() as scratch:
            build(Path(scratch), folder, arguments.base)
    except BrokenReleaseError as error:
        problem = str(error)
    except subprocess.CalledProcessError as error:
        problem = f"`{' '.join(error.cmd)}` ended with status {error.returncode}"
    else:
        return 0
    print(f"release: {problem}", file=sys.stderr)
    return 1


def build(source: Path, folder: Path, base: str | None) -> None:
    """Builds all parts from a copy of the sources.

    Raises:
        BrokenReleaseError: a part is missing or wrong.
    """
    copy_tracked(source)
    wheel = build_packages(source, folder)
    print(f"wheel: {wheel}, with {JAR}", flush=True)
    try_wheel(wheel)
    print("wheel: runs in an empty environment", flush=True)
    _run(sys.executable, str(ROOT / "krew" / "package.py"), str(folder))
    print("kubectl bst: its archive and its manifest", flush=True)
    helm = shutil.which("helm")
    if helm:
        print(f"chart: {build_chart(helm, source, folder)}", flush=True)
    else:
        skip("chart", "there is no helm on the PATH")
    docker = shutil.which("docker")
    if docker and _ends_well(docker, "info"):
        for image in build_images(docker, source, base):
            print(f"image: {image}", flush=True)
    else:
        skip("images", "Docker does not run here")


def skip(part: str, why: str) -> None:
    """Says that a part was not built.

    Raises:
        BrokenReleaseError: in CI, which may skip nothing.
    """
    if os.environ.get("CI") == "true":
        message = f"{part}: {why}, and CI skips nothing"
        raise BrokenReleaseError(message)
    print(f"{part}: skipped, {why}", flush=True)


def _ends_well(*command: str) -> bool:
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def _run(*command: str, cwd: Path = ROOT, env: dict[str, str] | None = None) -> str:
    """What a command prints; its errors are the terminal's."""
    ended = subprocess.run(command, cwd=cwd, env=env, stdout=subprocess.PIPE, text=True, check=True)
    return ended.stdout


if __name__ == "__main__":
    sys.exit(main())
