"""Names and texts that YAML would read as numbers, dates or nothing stay what they are."""

from __future__ import annotations

from typing import Any

import pytest
from charts import Manifest, identity, load, template

pytestmark = [pytest.mark.e2e, pytest.mark.e2e_ci]

NAMES = (
    *("0", "123", "00123", "1e3", "0x1f", "0b1", "0o7", "1-2", "2001-01-01", "9e9999", "1234e5678"),
    *("true", "false", "yes", "no", "on", "off", "y", "n", "null", "nan", "inf", "infinity"),
)
"""What Kubernetes takes as a name."""

TEXTS = (
    *("1.0", "1_000", ".5", "-.inf", "1:30", "12:30:45", "2001-01-01T00:00:00Z", "~"),
    *(
        "",
        " ",
        "- a",
        "a: b",
        "#a",
        "a #b",
        "{a}",
        "[a",
        "&a",
        "*a",
        "!a",
        "|",
        ">",
        "%a",
        "@a",
        "`a",
    ),
    *("{{ .Release }}", "'", '"', "\\", "\\n", "a\nb", "a\tb", "\u00e9", "\u2028", "\U0001f600"),
)
"""What else can be a text."""

NEUTRAL = "neutral"


def name_everything(name: str) -> Manifest:
    """Values with a name wherever one may stand."""
    return {
        "image": {"registry": name, "repository": name, "tag": name},
        "imagePullSecrets": [{"name": name}],
        "nameOverride": name,
        "watch": {"namespaces": [name]},
        "prometheus": {"url": f"http://{name}", "credentialsSecret": name},
        "serviceAccount": {"name": name},
        "streams": {"allowedServiceAccounts": [name]},
        "priorityClassName": name,
        "runtimeClassName": name,
        "extraEnv": [{"name": name, "valueFrom": {"secretKeyRef": {"name": name, "key": name}}}],
        "extraVolumes": [{"name": name, "configMap": {"name": name}}],
        "extraVolumeMounts": [{"name": name, "mountPath": f"/{name}"}],
        "networkPolicy": {"streams": {"namespaces": [name]}},
        "monitoring": {
            "podMonitor": {"enabled": True, "namespaces": [name]},
            "rules": {"enabled": True},
            "dashboard": {"enabled": True},
        },
        **write_everywhere(name),
    }


def write_everywhere(text: str) -> Manifest:
    """Values with a text wherever any may stand."""
    texts = {"text": text}
    return {
        "commonLabels": {"common": text},
        "commonAnnotations": {"common": text},
        "deploymentAnnotations": texts,
        "podAnnotations": texts,
        "podLabels": texts,
        "nodeSelector": texts,
        "affinity": {"nodeAffinity": texts},
        "tolerations": [{"key": text, "value": text}],
        "topologySpreadConstraints": [{"topologyKey": text}],
        "dnsConfig": {"searches": [text]},
        "hostAliases": [{"ip": text, "hostnames": [text]}],
        "extraArgs": [f"--{text}"],
        "extraObjects": [{"apiVersion": "v1", "kind": "Secret", "metadata": {"name": text}}],
    }


def substitute(found: Any, word: str) -> Any:
    """What was rendered with the neutral word, with another one in its place."""
    if isinstance(found, str):
        return found.replace(NEUTRAL, word)
    if isinstance(found, list):
        return [substitute(entry, word) for entry in found]
    if isinstance(found, dict):
        return {substitute(key, word): substitute(value, word) for key, value in found.items()}
    return found


def sort(manifests: list[Manifest]) -> list[Manifest]:
    return sorted(manifests, key=identity)


@pytest.mark.parametrize("name", NAMES)
def test_a_name_stays_a_name(helm: str, name: str) -> None:
    def render(word: str, **more: str) -> list[Manifest]:
        values = {**name_everything(word), **more}
        return sort(load(template(helm, values, release=word, namespace=word)))

    assert render(name) == sort(substitute(render(NEUTRAL), name))
    whole = {"fullnameOverride": NEUTRAL}
    expected = sort(substitute(render(NEUTRAL, **whole), name))
    assert render(name, fullnameOverride=name) == expected


@pytest.mark.parametrize("text", TEXTS)
def test_a_text_stays_a_text(helm: str, text: str) -> None:
    values = {
        **write_everywhere(text),
        "prometheus": {"labels": {"cluster": text}},
        "serviceAccount": {"annotations": {"text": text}},
        "extraEnv": [{"name": "TEXT", "value": text}],
        "monitoring": {
            "podMonitor": {"enabled": True, "labels": {"text": text}},
            "rules": {"enabled": True, "labels": {"text": text}},
            "dashboard": {
                "enabled": True,
                "labels": {"text": text},
                "annotations": {"text": text},
            },
        },
    }
    neutral = load(template(helm, substitute_back(values, text)))
    assert sort(load(template(helm, values))) == sort(substitute(neutral, text))


def substitute_back(values: Any, text: str) -> Any:
    """The same values with the neutral word."""
    if isinstance(values, str):
        return values[: len(values) - len(text)] + NEUTRAL if values.endswith(text) else values
    if isinstance(values, list):
        return [substitute_back(entry, text) for entry in values]
    if isinstance(values, dict):
        return {key: substitute_back(value, text) for key, value in values.items()}
    return values


def cluster_wide(manifests: list[Manifest]) -> set[tuple[str, str]]:
    found = map(identity, manifests)
    return {(kind, name) for kind, namespace, name in found if not namespace}


@pytest.mark.parametrize("first", [{}, {"watch": {"namespaces": ["shop"]}}])
@pytest.mark.parametrize("second", [{}, {"watch": {"namespaces": ["bank"]}}])
def test_releases_of_one_name_in_two_namespaces_share_no_object(
    helm: str, first: Manifest, second: Manifest
) -> None:
    one = load(template(helm, first, namespace="a"))
    other = load(template(helm, {**second, "crds": {"install": False}}, namespace="b"))
    assert cluster_wide(one)
    assert not cluster_wide(one) & cluster_wide(other)
    assert not {*map(identity, one)} & {*map(identity, other)}


def test_names_and_namespaces_that_meet_in_the_middle_are_told_apart(helm: str) -> None:
    one = load(template(helm, {"fullnameOverride": "a-b"}, namespace="c"))
    other = load(template(helm, {"fullnameOverride": "a"}, namespace="b-c"))
    shared = cluster_wide(one) & cluster_wide(other)
    assert {kind for kind, _ in shared} == {"CustomResourceDefinition"}
