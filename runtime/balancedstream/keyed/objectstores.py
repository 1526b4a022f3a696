"""Checkpoints on object stores, by pyarrow: S3, Google Cloud Storage and Azure.

The store is reached as Spark reaches it: by what the session tells Hadoop's file system of the same
location. What the session leaves open is up to the cloud's own defaults, such as the role of a pod.
An upload that fails may leave a part of a file, even after the next try has ended: so each try has
a name of its own, and the name that is told is that of a complete one.
"""

from __future__ import annotations

import io
import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import lru_cache
from typing import Any, BinaryIO, TypeVar

from balancedstream.errors import CheckpointError
from balancedstream.keyed.stores import MountedStore, Naming, Store, Upload
from balancedstream.workers.names import find_folder

PATIENCE_S = 60.0
"""A store that fails is asked again for so long. Hadoop's S3A waits about as long."""

REQUEST_TIMEOUT_S = 20.0
"""pyarrow's own 3 s are too short for a store under load."""

CONNECT_TIMEOUT_S = 5.0

_FIRST_PAUSE_S = 0.2
_MAX_PAUSE_S = 5.0

_SPOOLED_BYTES = 8 << 20
"""State that is handed over is in memory up to this size, and else in a temporary file."""

_IN_VAIN = re.compile(
    "ACCESS_DENIED|INVALID_ACCESS_KEY_ID|SIGNATURE_DOES_NOT_MATCH|INVALID_CLIENT_TOKEN_ID"
    r"|NO_SUCH_BUCKET|HTTP status 40[134]\b"
    "|PERMISSION_DENIED|UNAUTHENTICATED|AuthenticationFailed|AuthorizationFailure"
)
"""Answers that asking again does not change."""

_S3A = tuple(
    f"fs.s3a.{name}"
    for name in (
        "access.key",
        "assumed.role.arn",
        "assumed.role.session.name",
        "aws.credentials.provider",
        "connection.ssl.enabled",
        "encryption.algorithm",
        "endpoint",
        "endpoint.region",
        "path.style.access",
        "proxy.host",
        "proxy.password",
        "proxy.port",
        "proxy.ssl.enabled",
        "proxy.username",
        "secret.key",
        "server-side-encryption-algorithm",
        "session.token",
    )
)

HADOOP_NAMES = (*_S3A, "fs.azure.sas.fixed.token")
"""Settings of Hadoop's that say how a store is reached."""

HADOOP_PREFIXES = ("fs.s3a.bucket.", "fs.gs.", "fs.azure.account.", "fs.azure.sas.fixed.token.")
"""Beginnings of further ones: of a single bucket or account, and of Google's."""

_LOCATION = re.compile(r"(?P<scheme>[a-z][-+.a-z0-9]*)://(?P<authority>[^/]+)(?P<path>/.*)?", re.I)

_AWS_HOST = re.compile(r"(?:.*\.)?amazonaws\.com(?:\.cn)?(?::[0-9]+)?")
_AWS_REGION = re.compile(r"\b[a-z]{2}(?:-[a-z]+)+-[0-9]\b")

_SECRET = re.compile(
    r"(?P<name>[?&/](?:sig|X-Amz-Signature|X-Amz-Security-Token)=)[^&\s'\"/]*", re.I
)
"""In the addresses that stores name in their errors."""

_Answer = TypeVar("_Answer")


@dataclass(frozen=True, slots=True)
class Access:
    """How a session reaches object stores; it travels to tasks with the functions that they run.

    Attributes:
        settings: name and value of settings of Hadoop's, among them secrets, so nothing shows them.
    """

    settings: frozenset[tuple[str, str]] = field(default=frozenset(), repr=False)


@dataclass(frozen=True, slots=True)
class Opening:
    """What pyarrow is asked for.

    Attributes:
        system: name of a class in `pyarrow.fs`.
        options: of its constructor; nothing shows them, because there are secrets among them.
        root: the checkpoint in it: bucket and path.
    """

    system: str
    options: dict[str, Any] = field(repr=False)
    root: str


@lru_cache(maxsize=8)
def open_store(checkpoint: str, access: Access) -> Store:
    """The store that a checkpoint is on; one process opens it once.

    Raises:
        CheckpointError: it is on no storage that Python can reach, or not with these settings.
    """
    folder = find_folder(checkpoint)
    if folder is not None:
        return MountedStore(folder)
    opening = find_opening(checkpoint, access)
    # Not above: there are drivers without it, whose checkpoints are on mounted storage.
    from pyarrow import ArrowException, __version__, fs  # noqa: PLC0415

    try:
        system = getattr(fs, opening.system)(**opening.options)
    except (ImportError, TypeError) as error:
        why = f"pyarrow {__version__} has no such store, or not with these settings ({error})"
        raise _refuse(checkpoint, why, "install pyarrow 21 or newer") from error
    except (OSError, ValueError, ArrowException) as error:
        why = f"pyarrow cannot open it with the session's settings ({_hide(str(error))})"
        raise _refuse(checkpoint, why, "look at the settings of its file system") from None
    return ObjectStore(checkpoint, system, opening.root)


def find_opening(checkpoint: str, access: Access) -> Opening:
    """How pyarrow opens the object store of a checkpoint.

    Raises:
        CheckpointError: it is on other storage, or the settings are none that pyarrow has.

    >>> find_opening("gs://lake/clicks", Access())
    Opening(system='GcsFileSystem', root='lake/clicks')
    """
    found = _LOCATION.fullmatch(checkpoint)
    of_scheme = _OPENINGS.get(found["scheme"].lower()) if found else None
    if found is None or of_scheme is None:
        why = "is neither on a mounted file system nor in an object store that Python can reach"
        todo = (
            "put the checkpoint on a mounted file system, on S3 (s3a:), GCS (gs:) or Azure (abfss:)"
        )
        raise _refuse(checkpoint, why, todo)
    settings = _Settings(checkpoint, dict(access.settings))
    return of_scheme(settings, found["authority"], (found["path"] or "").strip("/"))


class ObjectStore:
    """Files of a checkpoint below a path in a file system of pyarrow's."""

    def __init__(self, checkpoint: str, system: Any, root: str) -> None:
        self._checkpoint = checkpoint
        self._system = system
        self._root = root

    def locate(self, file: str) -> str:
        """As in `Store`."""
        return f"{self._checkpoint.rstrip('/')}/{file}"

    def read(self, file: str) -> bytes:
        """As in `Store`."""

        def read() -> bytes:
            with self._system.open_input_file(self._path(file)) as stream:
                content: bytes = stream.read()
                return content

        return _persist(read)

    def read_part(self, file: str, offset: int, size: int) -> bytes:
        """As in `Store`."""

        def read() -> bytes:
            with self._system.open_input_file(self._path(file)) as stream:
                there = min(size, stream.size() - offset)
                content: bytes = stream.read_at(there, offset) if there > 0 else b""
                return content

        return _persist(read)

    def write(self, name: Naming, content: bytes) -> str:
        """As in `Store`."""
        return self._upload(name, io.BytesIO(content))

    def create(self, name: Naming) -> Upload:
        """As in `Store`."""
        return _SpooledUpload(lambda content: self._upload(name, content))

    def list_files(self, folder: str) -> list[str]:
        """As in `Store`."""
        from pyarrow.fs import FileSelector, FileType  # noqa: PLC0415

        selector = FileSelector(self._path(folder), allow_not_found=True)
        entries = _persist(lambda: self._system.get_file_info(selector))
        return [entry.base_name for entry in entries if entry.type == FileType.File]

    def remove(self, file: str) -> None:
        """As in `Store`, but tried once: what stays is removed when the next batch is planned."""
        with _as_os_errors():
            self._system.delete_file(self._path(file))

    def _upload(self, name: Naming, content: BinaryIO) -> str:
        def upload() -> str:
            content.seek(0)
            file = name()
            with self._system.open_output_stream(self._path(file)) as stream:
                shutil.copyfileobj(content, stream, _SPOOLED_BYTES)
            return file

        return _persist(upload)

    def _path(self, file: str) -> str:
        return f"{self._root}/{file}"


class _SpooledUpload:
    """Uploads when it is closed, so that a task that is killed leaves nothing half uploaded."""

    def __init__(self, upload: Callable[[BinaryIO], str]) -> None:
        self._upload = upload
        self._spool: Any = tempfile.SpooledTemporaryFile(_SPOOLED_BYTES)  # noqa: SIM115 - closed below

    def tell(self) -> int:
        size: int = self._spool.tell()
        return size

    def write(self, content: bytes) -> None:
        self._spool.write(content)

    def close(self) -> str:
        with self._spool:
            return self._upload(self._spool)


def _persist(ask: Callable[[], _Answer]) -> _Answer:
    """Asks a store until it answers; every question here can be asked twice.

    Raises:
        FileNotFoundError: the store answers that there is no such file.
        OSError: it still fails after `PATIENCE_S`, or says that it always will.
    """
    began_s = time.monotonic()
    pause_s = _FIRST_PAUSE_S
    while True:
        try:
            with _as_os_errors():
                return ask()
        except FileNotFoundError:
            raise
        except OSError as error:
            waited_s = time.monotonic() - began_s
            if waited_s >= PATIENCE_S or _IN_VAIN.search(str(error)):
                message = f"{error}, and so for {waited_s:.0f} s"
                raise OSError(message) from None
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, _MAX_PAUSE_S)


@contextmanager
def _as_os_errors() -> Iterator[None]:
    """What pyarrow raises, as an OSError that names no secret.

    What Azure's and Google's libraries do not foresee is an ArrowException, and an address in an
    error may have a signature. The error before is left out: people would read it in a traceback.
    """
    from pyarrow import ArrowException  # noqa: PLC0415 - as in `open_store`

    try:
        yield
    except FileNotFoundError as error:
        raise FileNotFoundError(_hide(str(error))) from None
    except (OSError, ArrowException) as error:
        raise OSError(_hide(str(error))) from None


def _hide(text: str) -> str:
    """A text without the signatures in its addresses.

    >>> _hide("GET 'https://a.blob/c?se=1&sig=abc%3D&sv=2' failed")
    "GET 'https://a.blob/c?se=1&sig=...&sv=2' failed"
    """
    return _SECRET.sub(r"\g<name>...", text)


@dataclass(frozen=True, slots=True)
class _Settings:
    """What Hadoop is told of the file system of one checkpoint."""

    checkpoint: str
    values: dict[str, str] = field(repr=False)

    def find(self, *names: str) -> str:
        """The first of these that is set; empty if none is."""
        return next((value for name in names if (value := self.values.get(name, "").strip())), "")

    def refuse(self, why: str, todo: str) -> CheckpointError:
        """The error that refuses the checkpoint."""
        return _refuse(self.checkpoint, why, todo)


def _open_s3(settings: _Settings, bucket: str, path: str) -> Opening:
    def find(name: str) -> str:
        return settings.find(f"fs.s3a.bucket.{bucket}.{name}", f"fs.s3a.{name}")

    encryption = find("encryption.algorithm") or find("server-side-encryption-algorithm")
    if encryption not in ("", "AES256"):
        why = f"is encrypted by each file ({encryption}), which pyarrow cannot do"
        todo = "set the encryption as the bucket's default, instead of in fs.s3a"
        raise settings.refuse(why, todo)
    options: dict[str, Any] = {
        "allow_delayed_open": True,  # a small file is then one request
        "background_writes": False,
        "connect_timeout": CONNECT_TIMEOUT_S,
        "request_timeout": REQUEST_TIMEOUT_S,
        **_find_s3_account(settings, find),
    }
    scheme, _, host = find("endpoint").rpartition("://")
    of_aws = _AWS_HOST.fullmatch(host)
    in_host = _AWS_REGION.search(host) if of_aws else None
    region = find("endpoint.region") or (in_host[0] if in_host else "")
    if region and region != "sdk":
        options["region"] = region
    elif host and not of_aws and "AWS_REGION" not in os.environ:
        options["region"] = "us-east-1"  # what a store that has no regions wants to read
    is_plain = find("connection.ssl.enabled").lower() == "false"
    if host not in ("", "s3.amazonaws.com"):
        options["scheme"] = scheme or ("http" if is_plain else "https")
        options["endpoint_override"] = host.rstrip("/")
        options["force_virtual_addressing"] = find("path.style.access").lower() != "true"
    if proxy := find("proxy.host"):
        port = find("proxy.port") or ("80" if is_plain else "443")
        if not (port.isascii() and port.isdigit()):
            why = f"is behind a proxy whose port is not a number ({port!r})"
            raise settings.refuse(why, "set fs.s3a.proxy.port to a number")
        options["proxy_options"] = {
            "scheme": "https" if find("proxy.ssl.enabled").lower() == "true" else "http",
            "host": proxy,
            "port": int(port),
            "username": find("proxy.username"),
            "password": find("proxy.password"),
        }
    return Opening("S3FileSystem", options, f"{bucket}/{path}".rstrip("/"))


def _find_s3_account(settings: _Settings, find: Callable[[str], str]) -> dict[str, Any]:
    """Whom S3 is asked as; by default whom AWS says that the process is, such as a pod's role."""
    providers = find("aws.credentials.provider")
    if "Anonymous" in providers:
        return {"anonymous": True}
    keys = {
        "access_key": find("access.key"),
        "secret_key": find("secret.key"),
        "session_token": find("session.token"),
    }
    given = {name: value for name, value in keys.items() if value}
    if "AssumedRole" not in providers:
        return given
    if given:
        why = "is reached by a role that is assumed with keys in fs.s3a, which pyarrow cannot do"
        todo = "give driver and executors the keys as AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        raise settings.refuse(why, todo)
    role = {
        "role_arn": find("assumed.role.arn"),
        "session_name": find("assumed.role.session.name"),
    }
    return {name: value for name, value in role.items() if value}


def _open_gcs(settings: _Settings, bucket: str, path: str) -> Opening:
    keyfile = settings.find("fs.gs.auth.service.account.json.keyfile")
    if keyfile and os.environ.get("GOOGLE_APPLICATION_CREDENTIALS") != keyfile:
        why = "is reached with a key file that only fs.gs names, which pyarrow cannot read"
        todo = f"set GOOGLE_APPLICATION_CREDENTIALS={keyfile} for driver and executors as well"
        raise settings.refuse(why, todo)
    options: dict[str, Any] = {"retry_time_limit": timedelta(seconds=REQUEST_TIMEOUT_S)}
    if settings.find("fs.gs.auth.type") == "UNAUTHENTICATED":
        options["anonymous"] = True
    if account := settings.find("fs.gs.auth.impersonation.service.account"):
        options["target_service_account"] = account
    scheme, _, host = settings.find("fs.gs.storage.root.url").rpartition("://")
    if host.rstrip("/") not in ("", "storage.googleapis.com"):
        options |= {"scheme": scheme or "https", "endpoint_override": host.rstrip("/")}
    return Opening("GcsFileSystem", options, f"{bucket}/{path}".rstrip("/"))


def _open_azure(settings: _Settings, authority: str, path: str) -> Opening:
    container, _, host = authority.rpartition("@")
    account, _, domain = host.partition(".")
    if not container or not domain:
        why = "names no container and account"
        raise settings.refuse(why, "write abfss://container@account.dfs.core.windows.net/path")

    def find(name: str) -> str:
        return settings.find(f"{name}.{host}", name)

    _, _, service = domain.partition(".")
    options: dict[str, Any] = {"account_name": account}
    if service != "core.windows.net":
        options["blob_storage_authority"] = f".blob.{service}"
        options["dfs_storage_authority"] = f".dfs.{service}"
    sas = find("fs.azure.sas.fixed.token")
    keys = {
        "account_key": find("fs.azure.account.key"),
        # pyarrow appends it to addresses as it is; Hadoop takes it with and without the mark.
        "sas_token": sas and f"?{sas.lstrip('?')}",
        "client_id": find("fs.azure.account.oauth2.client.id"),
        "client_secret": find("fs.azure.account.oauth2.client.secret"),
    }
    options |= {name: value for name, value in keys.items() if value}
    if "client_secret" in options:
        # https://login.microsoftonline.com/<tenant>/oauth2/token
        endpoint = find("fs.azure.account.oauth2.client.endpoint").partition("://")[2]
        options["tenant_id"] = endpoint.partition("/")[2].partition("/")[0]
    return Opening("AzureFileSystem", options, f"{container}/{path}".rstrip("/"))


def _refuse(checkpoint: str, why: str, todo: str) -> CheckpointError:
    return CheckpointError(
        f"the checkpoint {checkpoint} {why}, where balanced(...) keeps the state that is handed "
        f"over; no row was processed: {todo}, or leave out balanced(...)"
    )


_OPENINGS: dict[str, Callable[[_Settings, str, str], Opening]] = {
    **dict.fromkeys(("s3", "s3a", "s3n"), _open_s3),
    "gs": _open_gcs,
    **dict.fromkeys(("abfs", "abfss", "wasb", "wasbs"), _open_azure),
}
