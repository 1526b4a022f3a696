"""The secret by which a stream's driver and executors know each other (`spark.authenticate`): pure.

Spark alone would write it into the environment of executor pods, for everyone to see who may read
pods. So it is in a Secret, and pods only name that.
"""

from __future__ import annotations

import base64

from balancedstream_operator.api.resource import Stream
from balancedstream_operator.api.spec import StreamSpec

SECRET_DIR = "/etc/balancedstream-secret"  # noqa: S105 - where it is

_FILE = "secret"
_KEY = "key"


def secret_name(stream: Stream) -> str:
    """Name of a stream's Secret; the one of a stream that had its name may still be there.

    >>> secret_name(Stream("default", "clicks", "1f0c"))
    'clicks-authentication-1f0c'
    """
    return f"{stream.name}-authentication-{stream.uid}"


def has_secret(spec: StreamSpec) -> bool:
    """Whether a stream needs a Secret: its Spark settings do not bring one of their own."""
    return not any(name.startswith("spark.authenticate.secret") for name in spec.spark_conf)


def secret_conf(stream: Stream) -> dict[str, str]:
    """Settings of a driver that has the Secret in `SECRET_DIR`.

    A file is of no use to executors: they need the secret to ask the driver for its settings, and
    read a file only if they know `spark.master`, which is among them
    (`SecurityManager.secretKeyFromFile`). So they get it as a variable from the Secret. Their file
    is named, and never read, because otherwise Spark writes that variable itself
    (`BasicExecutorFeatureStep`).
    """
    path, key = f"{SECRET_DIR}/{_FILE}", f"{secret_name(stream)}:{_KEY}"
    return {
        "spark.authenticate.secret.driver.file": path,
        "spark.authenticate.secret.executor.file": path,
        "spark.kubernetes.executor.secretKeyRef._SPARK_AUTH_SECRET": key,
    }


def fill_secret(random: bytes) -> dict[str, str]:
    """What a Secret holds: the driver's file, and the key that Spark makes of its content.

    >>> fill_secret(bytes([255]))
    {'secret': 'ff', 'key': 'ZmY='}
    """
    text = random.hex()
    return {_FILE: text, _KEY: base64.b64encode(text.encode()).decode()}
