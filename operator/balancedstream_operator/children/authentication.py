"""The secret with which driver and executors authenticate each other (`spark.authenticate`): pure.

Spark alone would write the secret into the environment of executor pods, where everyone who may
read pods can see it. So it is in a Secret, and pods only name the Secret.
"""

from __future__ import annotations

import base64

from balancedstream_operator.api.resource import Stream
from balancedstream_operator.api.spec import StreamSpec

SECRET_DIR = "/etc/balancedstream-secret"  # noqa: S105 - a path

_FILE = "secret"
_KEY = "key"


def secret_name(stream: Stream) -> str:
    """Name of a stream's Secret.

    The uid keeps it apart from the Secret of a deleted stream with the same name.

    >>> secret_name(Stream("default", "clicks", "1f0c"))
    'clicks-authentication-1f0c'
    """
    return f"{stream.name}-authentication-{stream.uid}"


def has_secret(spec: StreamSpec) -> bool:
    """Whether a stream needs a Secret: its Spark settings do not set a secret themselves."""
    return not any(name.startswith("spark.authenticate.secret") for name in spec.spark_conf)


def secret_conf(stream: Stream) -> dict[str, str]:
    """Spark settings of a driver with the Secret mounted at `SECRET_DIR`.

    Executors cannot use a file. They need the secret to ask the driver for its settings, but read a
    file only if they know `spark.master`, which is one of these settings
    (`SecurityManager.secretKeyFromFile`). So they get the secret as a variable from the Secret. The
    settings still name a file for executors, which they never read: without it, Spark would write
    the variable itself (`BasicExecutorFeatureStep`).
    """
    path, key = f"{SECRET_DIR}/{_FILE}", f"{secret_name(stream)}:{_KEY}"
    return {
        "spark.authenticate.secret.driver.file": path,
        "spark.authenticate.secret.executor.file": path,
        "spark.kubernetes.executor.secretKeyRef._SPARK_AUTH_SECRET": key,
    }


def fill_secret(random: bytes) -> dict[str, str]:
    """The content of a Secret: the driver's file, and the key that Spark derives from the file.

    >>> fill_secret(bytes([255]))
    {'secret': 'ff', 'key': 'ZmY='}
    """
    text = random.hex()
    return {_FILE: text, _KEY: base64.b64encode(text.encode()).decode()}
