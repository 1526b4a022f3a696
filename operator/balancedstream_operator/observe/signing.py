"""Signs requests to Amazon's Prometheus (SigV4) as the identity that AWS gives this process.

botocore finds the identity: `AWS_…` variables, a web identity (IRSA), Pod Identity, or the node's.
It renews what expires.
"""

from __future__ import annotations

from functools import cache
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

import requests
from requests.auth import AuthBase

from balancedstream.errors import MissingPackageError
from balancedstream.version import say_install

SERVICE = "aps"
"""Amazon Managed Service for Prometheus, as signatures name it."""

TIMEOUT_S = 5
"""To connect to what gives identities, and for each read of its answer; it is asked twice."""


class IdentityError(requests.RequestException):
    """AWS gives this process no identity, so nothing was sent; the next pass tries again."""


def check_package() -> None:
    """Checks that requests can be signed.

    Raises:
        MissingPackageError: botocore is not installed.
    """
    try:
        import botocore.auth  # noqa: F401, PLC0415 - an extra
    except ImportError as error:
        message = (
            "--prometheus-sigv4-region needs botocore, and nothing was started. Install it, "
            f"{say_install('aws')}"
        )
        raise MissingPackageError(message) from error


@cache
def _open_session() -> Any:
    """What knows the identity; one for all threads, because it renews what it found."""
    import botocore.session  # noqa: PLC0415 - an extra
    from botocore.config import Config  # noqa: PLC0415

    session = botocore.session.Session()
    session.set_config_variable("metadata_service_timeout", TIMEOUT_S)
    session.set_config_variable("metadata_service_num_attempts", 2)
    retries = {"total_max_attempts": 2, "mode": "standard"}
    session.set_default_client_config(
        Config(connect_timeout=TIMEOUT_S, read_timeout=TIMEOUT_S, retries=retries)
    )
    return session


class AwsSignature(AuthBase):
    """Signs each request of a session.

    Args:
        region: of the Prometheus, such as eu-central-1.
    """

    def __init__(self, region: str) -> None:
        self._region = region

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        """Adds the signature to a request.

        Raises:
            IdentityError: AWS gives this process no identity.
        """
        from botocore.auth import SigV4Auth  # noqa: PLC0415 - an extra
        from botocore.awsrequest import AWSRequest  # noqa: PLC0415

        request.url = _spell(str(request.url))
        # The headers of the session are not signed: a proxy may change them.
        signed = AWSRequest(request.method, request.url, data=request.body or b"")
        SigV4Auth(self._find_identity(), SERVICE, self._region).add_auth(signed)
        request.headers.update(dict(signed.headers))
        return request

    def _find_identity(self) -> Any:
        from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415 - an extra

        try:
            found = _open_session().get_credentials()
            if found is not None:
                return found.get_frozen_credentials()
            said = "it has none"
        except ClientError as error:
            said = str(error.response.get("Error", {}).get("Code", "refused"))
        # By a RuntimeError it says that what it was given has expired already.
        except (BotoCoreError, OSError, RuntimeError) as error:
            said = f"{type(error).__name__}: {error}"
        message = (
            f"AWS gives the operator no identity to sign requests with ({said[:200]}): see that "
            "its ServiceAccount has a role (IRSA or Pod Identity), or set AWS_… in extraEnv of the "
            "chart"
        )
        raise IdentityError(message)


def _spell(url: str) -> str:
    """A URL as AWS reads it before it checks the signature: a blank is %20, and no plus.

    >>> _spell("https://aps/api/v1/query?query=up+%3E+1&time=1.0")
    'https://aps/api/v1/query?query=up%20%3E%201&time=1.0'
    """
    parts = urlsplit(url)
    query = urlencode(parse_qsl(parts.query, keep_blank_values=True), quote_via=quote, safe="~")
    return parts._replace(query=query).geturl()
