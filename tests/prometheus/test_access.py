"""A Prometheus with TLS and passwords answers those whom it knows; others read what is missing."""

from __future__ import annotations

import json
import subprocess
import time
from base64 import b64encode
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

import pytest
from loopback import serve
from manifests import STREAM, make_spec
from real_prometheus import PASSWORD, PASSWORD_HASH, USER, run_prometheus, scrape
from scraped_driver import Driver, Observe, has_batches, measure_until
from supervised import KeepingCluster

from balancedstream.core.policy import Policy
from balancedstream_operator.driver.state import DriverState
from balancedstream_operator.errors import MissingMeasurementsError
from balancedstream_operator.observe.http import AnswerBudgets
from balancedstream_operator.observe.measurer import Measurer
from balancedstream_operator.observe.prometheus import Prometheus
from balancedstream_operator.settings import Settings

DRIVER = DriverState("Running", "", "", running=True, pod="clicks-driver-0", ips=("127.0.0.1",))


def issue(folder: Path, name: str, issuer: str = "") -> None:
    """A certificate and its key, signed by an issuer or by itself."""
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt"]
    command += ["ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", f"/CN={name}"]
    command += ["-addext", "keyUsage=critical,digitalSignature,keyCertSign"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1"]
    command += ["-keyout", f"{name}.key", "-out", f"{name}.crt"]
    if issuer:
        command += ["-CA", f"{issuer}.crt", "-CAkey", f"{issuer}.key"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where certificates and keys are."""
    folder = tmp_path_factory.mktemp("certificates")
    for name, issuer in (
        ("authority", ""),
        ("server", "authority"),
        ("client", "authority"),
        ("stranger", ""),
    ):
        issue(folder, name, issuer)
    return folder


@pytest.fixture(scope="module")
def url(folder: Path) -> Iterator[str]:
    web = {
        "tls_server_config": {
            "cert_file": "server.crt",
            "key_file": "server.key",
            "client_ca_file": "authority.crt",
            "client_auth_type": "RequireAndVerifyClientCert",
        },
        "basic_auth_users": {USER: PASSWORD_HASH},
    }
    (folder / "web.yml").write_text(json.dumps(web), "utf-8")
    with serve(Driver(str(STREAM)).answer) as page:
        jobs = [scrape(page)]
        with run_prometheus(folder, {"scrape_configs": jobs}, "--web.config.file=web.yml") as found:
            yield found.replace("http:", "https:")


@pytest.fixture
def secret(folder: Path) -> dict[str, str]:
    """What the Secret of a stream holds."""
    return {
        "username": USER,
        "password": PASSWORD,
        "ca.crt": (folder / "authority.crt").read_text("ascii"),
        "tls.crt": (folder / "client.crt").read_text("ascii"),
        "tls.key": (folder / "client.key").read_text("ascii"),
    }


def observe_with(secret: Mapping[str, str], url: str) -> Observe:
    """Measures as the operator does for a stream that names a Prometheus and a Secret."""
    cluster = KeepingCluster()
    data = {key: b64encode(value.encode()).decode() for key, value in secret.items()}
    cluster.objects["Secret", "account"] = {"data": data}
    open_source = partial(Prometheus, budgets=AnswerBudgets())
    measurer = Measurer(STREAM, cluster, open_source, Settings(allowed_urls=(url,)))
    spec = make_spec(metrics={"prometheusUrl": url, "secret": "account"})
    return lambda now_s: measurer.measure(spec, DRIVER, Policy(), now_s)


def test_a_stream_is_measured_with_what_its_secret_holds(url: str, secret: dict[str, str]) -> None:
    measure_until(has_batches(1), observe_with(secret, url))


def why_missing(url: str, secret: dict[str, str]) -> str:
    with pytest.raises(MissingMeasurementsError) as raised:
        observe_with(secret, url)(time.time())
    said = str(raised.value)
    assert said.startswith(f"Prometheus at {url} cannot be queried: ")
    assert PASSWORD not in said
    return said


@pytest.mark.parametrize("change", [{"password": "other"}, {"username": "other"}, {"username": ""}])
def test_of_an_unknown_password_the_status_is_told(
    url: str, secret: dict[str, str], change: dict[str, str]
) -> None:
    said = "it answered with status 401 (Unauthorized): it wants other credentials"
    assert why_missing(url, {**secret, **change}).endswith(said)


def test_a_server_that_the_authority_does_not_know_is_not_believed(
    url: str, secret: dict[str, str], folder: Path
) -> None:
    unknown = {**secret, "ca.crt": (folder / "stranger.crt").read_text("ascii")}
    assert "certificate verify failed" in why_missing(url, unknown)
    del secret["ca.crt"]
    assert "certificate verify failed" in why_missing(url, secret)


def test_it_is_told_that_the_server_wants_another_certificate_of_the_client(
    url: str, secret: dict[str, str], folder: Path
) -> None:
    for suffix in ("crt", "key"):
        secret[f"tls.{suffix}"] = (folder / f"stranger.{suffix}").read_text("ascii")
    assert "tls.crt" in why_missing(url, secret)
    del secret["tls.crt"], secret["tls.key"]
    assert "tls.crt" in why_missing(url, secret)
