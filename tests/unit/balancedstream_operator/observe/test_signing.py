"""Requests to Amazon's Prometheus are signed so that a server that knows the key accepts them."""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qsl, quote

import pytest
from loopback import Request, Response, serve

from balancedstream.core.policy import Policy
from balancedstream_operator.api.spec import read_spec
from balancedstream_operator.errors import MissingMeasurementsError
from balancedstream_operator.observe import signing
from balancedstream_operator.observe.endpoints import Endpoint, Subject, choose_endpoint
from balancedstream_operator.observe.http import AnswerBudgets
from balancedstream_operator.observe.prometheus import Prometheus
from balancedstream_operator.settings import Settings

NOTHING = {"status": "success", "data": {"resultType": "matrix", "result": []}}
REGION = "eu-central-1"
FORBIDDEN = Response({"message": "The security token included in the request is invalid."}, 403)


class Amazon:
    """A Prometheus that checks signatures, and what gives identities: by AWS' own description.

    Attributes:
        secrets: each id of a key that holds now, and the secret and the session token of it.
        accepted: ids of the keys of requests that were accepted, oldest first.
        asked: what was asked for an identity, and by which token.
    """

    def __init__(self) -> None:
        self.secrets = {"AKIDFIXED": ("s3cret/+", "")}
        self.accepted: list[str] = []
        self.asked: list[tuple[str, str]] = []
        self.lifetime_s = 3600
        self.raw = ""

    def answer(self, request: Request) -> Response:
        if request.path == "/sts/":
            form = dict(parse_qsl(request.body))
            self.asked.append((form["Action"], form["WebIdentityToken"]))
            return self._give_by_sts()
        if request.path == "/pod-identity":
            self.asked.append(("pod", request.headers["authorization"]))
            key, secret, token, until = self._make()
            found = {"AccessKeyId": key, "SecretAccessKey": secret, "Token": token}
            return Response({**found, "Expiration": until})
        return Response(NOTHING) if self._verifies(request) else FORBIDDEN

    def _make(self) -> tuple[str, str, str, str]:
        key = f"ASIA{len(self.asked)}"
        self.secrets = {key: (f"secret{key}", f"session{key}")}
        until = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + self.lifetime_s))
        return key, *self.secrets[key], until

    def _give_by_sts(self) -> Response:
        key, secret, token, until = self._make()
        inner = (
            f"<AccessKeyId>{key}</AccessKeyId><SecretAccessKey>{secret}</SecretAccessKey>"
            f"<SessionToken>{token}</SessionToken><Expiration>{until}</Expiration>"
        )
        action = "AssumeRoleWithWebIdentity"
        body = (
            f'<{action}Response xmlns="https://sts.amazonaws.com/doc/2011-06-15/">'
            f"<{action}Result><Credentials>{inner}</Credentials></{action}Result>"
            f"</{action}Response>"
        )
        return Response(body, headers={"Content-Type": "text/xml"})

    def _verifies(self, request: Request) -> bool:
        """Signature Version 4, from what arrived."""
        found = re.fullmatch(
            r"AWS4-HMAC-SHA256 Credential=(\w+)/(\d{8})/([-\w]+)/(\w+)/aws4_request, "
            r"SignedHeaders=([-;\w]+), Signature=([0-9a-f]{64})",
            request.headers.get("authorization", ""),
        )
        if not found or found[1] not in self.secrets:
            return False
        key, day, region, service, names, signature = found.groups()
        secret, token = self.secrets[key]
        assert {"host", "x-amz-date"} <= {*names.split(";")}
        assert request.headers.get("x-amz-security-token", "") == token
        pairs = sorted((encode(n), encode(v)) for n, v in request.query.items())
        canonical = "\n".join(
            [
                request.method,
                "/".join(encode(part) for part in request.path.split("/")),
                "&".join(f"{name}={value}" for name, value in pairs),
                *(f"{name}:{request.headers[name].strip()}" for name in names.split(";")),
                "",
                names,
                hashlib.sha256(request.body.encode()).hexdigest(),
            ]
        )
        scope = f"{day}/{region}/{service}/aws4_request"
        digest = hashlib.sha256(canonical.encode()).hexdigest()
        text = "\n".join(["AWS4-HMAC-SHA256", request.headers["x-amz-date"], scope, digest])
        signer = f"AWS4{secret}".encode()
        for part in (day, region, service, "aws4_request"):
            signer = hmac.digest(signer, part.encode(), "sha256")
        right = hmac.digest(signer, text.encode(), "sha256").hex() == signature
        if right and (region, service) == (REGION, "aps"):
            self.accepted.append(key)
            return True
        return False


def encode(text: str) -> str:
    return quote(text, safe="-_.~")


@pytest.fixture(autouse=True)
def no_identity(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """No identity of the machine that runs the tests."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    signing._open_session.cache_clear()
    yield
    signing._open_session.cache_clear()


def ask(url: str, region: str = REGION) -> str:
    """Why there is no measurement; a server that answers as it should has no metrics."""
    endpoint = Endpoint(f"{url}/workspaces/ws-1", of_the_operator=True, sigv4_region=region)
    with pytest.raises(MissingMeasurementsError) as raised:
        Prometheus(endpoint, AnswerBudgets()).observe(Subject("shop/a b+c=~é"), Policy(), 1_000.5)
    return str(raised.value)


def test_a_request_is_signed_with_the_keys_of_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDFIXED")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s3cret/+")
    amazon = Amazon()
    with serve(amazon.answer) as url:
        assert ask(url).startswith("Prometheus has no metrics of this stream")
        assert set(amazon.accepted) == {"AKIDFIXED"}
        amazon.secrets = {"AKIDFIXED": ("another", "")}
        assert "cannot be queried" in ask(url)
        assert "cannot be queried" in ask(url, "us-east-1")


def test_a_web_identity_is_read_again_when_it_expires(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text("first", "utf-8")
    amazon = Amazon()
    # Less than the time before its end from which botocore renews it.
    amazon.lifetime_s = 300
    with serve(amazon.answer) as url:
        monkeypatch.setenv("AWS_ROLE_ARN", "arn:aws:iam::1:role/operator")
        monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(token))
        monkeypatch.setenv("AWS_REGION", REGION)
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", f"{url}/sts/")
        ask(url)
        token.write_text("second", "utf-8")
        ask(url)
    action = "AssumeRoleWithWebIdentity"
    assert amazon.asked[0] == (action, "first")
    assert amazon.asked[-1] == (action, "second")
    assert amazon.accepted[0].startswith("ASIA")
    assert len({*amazon.accepted}) > 1


def test_pod_identity_is_asked_with_the_pods_token(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text("pods", "utf-8")
    amazon = Amazon()
    with serve(amazon.answer) as url:
        monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{url}/pod-identity")
        monkeypatch.setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", str(token))
        ask(url)
        ask(url)
    assert amazon.asked == [("pod", "pods")]
    assert amazon.accepted


def test_without_an_identity_nothing_is_sent_and_the_message_says_so() -> None:
    requests: list[Request] = []

    def answer(request: Request) -> Response:
        requests.append(request)
        return Response(NOTHING)

    with serve(answer) as url:
        message = ask(url)
    assert "AWS gives the operator no identity to sign requests with (it has none)" in message
    assert not requests


def test_what_gives_identities_is_named_when_it_refuses(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text("mine", "utf-8")
    denied = "<ErrorResponse><Error><Code>AccessDenied</Code></Error></ErrorResponse>"
    with serve(lambda _: Response(denied, 403, {"Content-Type": "text/xml"})) as url:
        monkeypatch.setenv("AWS_ROLE_ARN", "arn:aws:iam::1:role/operator")
        monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(tmp_path / "token"))
        monkeypatch.setenv("AWS_REGION", REGION)
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", f"{url}/")
        assert "(AccessDenied)" in ask(url)
        monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(tmp_path / "gone"))
        signing._open_session.cache_clear()
        assert "AWS gives the operator no identity" in ask(url)


def test_an_identity_that_has_expired_when_it_is_given_is_none(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text("pods", "utf-8")
    amazon = Amazon()
    amazon.lifetime_s = -60
    with serve(amazon.answer) as url:
        monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{url}/pod-identity")
        monkeypatch.setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", str(tmp_path / "token"))
        message = ask(url)
    assert "AWS gives the operator no identity" in message
    assert "expired" in message
    assert not amazon.accepted


def test_only_the_operators_own_prometheus_sees_its_signature() -> None:
    spec = json.loads(
        '{"image": "a:1", "application": {"file": "/a.py"}, "executors": {"min": 1, "max": 2},'
        ' "checkpoints": {"claim": "c"}}'
    )
    settings = Settings("https://aps", allowed_urls=("*",), sigv4_region=REGION)
    own = read_spec(spec)
    assert choose_endpoint(own, settings, {}).sigv4_region == REGION
    assert not choose_endpoint(own, settings, {"token": "mine"}).sigv4_region
    other = read_spec({**spec, "metrics": {"prometheusUrl": "https://other"}})
    assert not choose_endpoint(other, settings, {}).sigv4_region
