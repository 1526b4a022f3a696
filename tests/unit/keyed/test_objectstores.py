"""An object store is reached as the session's Hadoop settings say."""

from __future__ import annotations

import traceback
from typing import Any
from unittest import mock

import pyarrow
import pytest
from pyspark import cloudpickle

from balancedstream.errors import CheckpointError
from balancedstream.keyed import objectstores
from balancedstream.keyed.objectstores import Access, ObjectStore, find_opening, open_store

SECRET = "abc/123"  # noqa: S105 - it opens nothing


def give(settings: dict[str, str]) -> Access:
    return Access(frozenset(settings.items()))


def open_s3(**settings: str) -> dict[str, Any]:
    """What pyarrow is told, with fs.s3a settings whose dots are written `__`."""
    access = give({f"fs.s3a.{name.replace('__', '.')}": v for name, v in settings.items()})
    return find_opening("s3a://lake/app", access).options


@pytest.mark.parametrize(
    ("checkpoint", "system", "root"),
    [
        ("s3a://lake/a b/%41#", "S3FileSystem", "lake/a b/%41#"),
        ("s3://lake/app/", "S3FileSystem", "lake/app"),
        ("S3N://lake", "S3FileSystem", "lake"),
        ("gs://lake/app", "GcsFileSystem", "lake/app"),
        ("abfss://c@acc.dfs.core.windows.net/app", "AzureFileSystem", "c/app"),
        ("wasbs://c@acc.blob.core.windows.net/app", "AzureFileSystem", "c/app"),
    ],
)
def test_a_location_is_a_path_in_a_store(checkpoint: str, system: str, root: str) -> None:
    opening = find_opening(checkpoint, Access())
    assert (opening.system, opening.root) == (system, root)


@pytest.mark.parametrize(
    "checkpoint", ["hdfs://n:8020/app", "viewfs:///app", "app", "abfss://c/app"]
)
def test_other_storage_is_refused_by_its_name_and_with_what_to_do(checkpoint: str) -> None:
    refused = f"the checkpoint {checkpoint} .*no row was processed: .*or leave out balanced"
    with pytest.raises(CheckpointError, match=refused):
        open_store(checkpoint, Access())


def test_without_settings_the_cloud_says_who_the_process_is_and_where_the_bucket_is() -> None:
    assert {"access_key", "region", "endpoint_override"}.isdisjoint(open_s3())
    (azure,) = find_opening("abfss://c@acc.dfs.core.windows.net/a", Access()).options.items()
    assert azure == ("account_name", "acc")


def test_keys_of_the_session_are_used_and_those_of_the_bucket_before_them() -> None:
    options = open_s3(access__key="A", secret__key=SECRET, session__token="T")  # noqa: S106
    assert [options[n] for n in ("access_key", "secret_key", "session_token")] == ["A", SECRET, "T"]
    assert open_s3(access__key="A", bucket__lake__access__key="B")["access_key"] == "B"
    assert open_s3(access__key="A", bucket__other__access__key="B")["access_key"] == "A"


@pytest.mark.parametrize(
    ("endpoint", "plain", "scheme", "host"),
    [
        ("http://minio:9000", "", "http", "minio:9000"),
        ("https://minio:9000/", "false", "https", "minio:9000"),
        ("minio:9000", "", "https", "minio:9000"),
        ("minio:9000", "false", "http", "minio:9000"),
    ],
)
def test_an_endpoint_of_ones_own_is_spoken_to_as_spark_does(
    endpoint: str, plain: str, scheme: str, host: str
) -> None:
    options = open_s3(endpoint=endpoint, connection__ssl__enabled=plain)
    assert (options["scheme"], options["endpoint_override"]) == (scheme, host)
    assert options["force_virtual_addressing"]
    assert not open_s3(endpoint=endpoint, path__style__access="true")["force_virtual_addressing"]


def test_the_region_is_that_of_the_settings_or_of_awss_endpoint() -> None:
    assert open_s3(endpoint__region="eu-west-3")["region"] == "eu-west-3"
    assert open_s3(endpoint="s3.eu-west-3.amazonaws.com")["region"] == "eu-west-3"
    assert "region" not in open_s3(endpoint__region="sdk")
    assert "endpoint_override" not in open_s3(endpoint="https://s3.amazonaws.com")


def test_a_role_is_assumed_or_nobody_is_asked() -> None:
    provider = "org.apache.hadoop.fs.s3a.auth.AssumedRoleCredentialProvider"
    role = {"aws__credentials__provider": provider, "assumed__role__arn": "arn:a"}
    assert open_s3(**role)["role_arn"] == "arn:a"
    with pytest.raises(CheckpointError, match=r"assumed with keys in fs\.s3a"):
        open_s3(**role, access__key="A", secret__key=SECRET)
    anonymous = "org.apache.hadoop.fs.s3a.AnonymousAWSCredentialsProvider"
    assert open_s3(aws__credentials__provider=anonymous)["anonymous"]


def test_encryption_that_pyarrow_cannot_do_is_refused_rather_than_left_out() -> None:
    open_s3(encryption__algorithm="AES256")
    with pytest.raises(CheckpointError, match=r"\(SSE-KMS\), which pyarrow cannot do"):
        open_s3(encryption__algorithm="SSE-KMS")


def test_a_port_of_a_proxy_that_is_no_number_is_refused_by_its_setting() -> None:
    refused = r"port is not a number \('80x'\).*set fs.s3a.proxy.port"
    with pytest.raises(CheckpointError, match=refused):
        open_s3(proxy__host="proxy", proxy__port="80x")


def test_azure_is_asked_with_the_key_of_the_account_or_as_an_application() -> None:
    host = "acc.dfs.core.chinacloudapi.cn"
    key = give({f"fs.azure.account.key.{host}": "a2V5", "fs.azure.account.key.other": "x"})
    assert find_opening(f"abfss://c@{host}/a", key).options == {
        "account_name": "acc",
        "account_key": "a2V5",
        "blob_storage_authority": ".blob.core.chinacloudapi.cn",
        "dfs_storage_authority": ".dfs.core.chinacloudapi.cn",
    }
    oauth = "fs.azure.account.oauth2.client"
    application = {
        f"{oauth}.id": "i",
        f"{oauth}.secret": SECRET,
        f"{oauth}.endpoint": "https://login.microsoftonline.com/tenant/oauth2/token",
    }
    options = find_opening("abfss://c@acc.dfs.core.windows.net/a", give(application)).options
    assert options == {
        "account_name": "acc",
        "client_id": "i",
        "client_secret": SECRET,
        "tenant_id": "tenant",
    }


def test_a_key_file_of_google_must_be_where_pyarrow_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    access = give({"fs.gs.auth.service.account.json.keyfile": "/keys/a.json"})
    with pytest.raises(CheckpointError, match=r"GOOGLE_APPLICATION_CREDENTIALS=/keys/a\.json"):
        find_opening("gs://lake/app", access)
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "/keys/a.json")
    assert find_opening("gs://lake/app", access).system == "GcsFileSystem"


@pytest.mark.parametrize(
    ("checkpoint", "settings"),
    [
        ("s3a://lake/app", {"fs.s3a.access.key": "A", "fs.s3a.secret.key": SECRET}),
        ("s3a://lake/app", {"fs.s3a.proxy.host": "proxy", "fs.s3a.proxy.port": "8080"}),
        ("gs://lake/app", {"fs.gs.storage.root.url": "http://localhost:1"}),
        ("abfss://c@a.dfs.core.windows.net/app", {"fs.azure.account.key": "a2V5"}),
    ],
)
def test_pyarrow_has_all_that_it_is_asked_for(checkpoint: str, settings: dict[str, str]) -> None:
    assert isinstance(open_store(checkpoint, give(settings)), ObjectStore)


def test_an_older_pyarrow_is_refused_with_what_to_install() -> None:
    with (
        mock.patch("pyarrow.fs.S3FileSystem", side_effect=TypeError("unexpected keyword")),
        pytest.raises(CheckpointError, match=r"unexpected keyword.* install pyarrow 21 or newer"),
    ):
        open_store("s3a://lake/older", Access())


def test_nothing_shows_a_secret() -> None:
    access = give({"fs.s3a.access.key": "A", "fs.s3a.secret.key": SECRET})
    opening = find_opening("s3a://lake/app", access)
    assert SECRET not in f"{access!r} {access} {opening!r} {opening}"
    assert cloudpickle.loads(cloudpickle.dumps(access)) == access


class Failing:
    """Fails so many times, then answers."""

    def __init__(self, times: int, message: str = "SLOW_DOWN") -> None:
        self.left = times
        self.asked = 0
        self._message = message

    def __call__(self) -> str:
        self.asked += 1
        self.left -= 1
        if self.left >= 0:
            raise OSError(self._message)
        return "answer"


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What a store is waited for, without waiting."""
    paused: list[float] = []
    fake = mock.Mock(monotonic=lambda: sum(paused), sleep=paused.append)
    monkeypatch.setattr(objectstores, "time", fake)
    return paused


def test_a_store_that_fails_is_asked_again(clock: list[float]) -> None:
    assert objectstores._persist(Failing(9)) == "answer"
    assert len(clock) == 9
    assert max(clock) <= 5.0


def test_a_store_that_stays_away_is_given_up_after_a_minute(clock: list[float]) -> None:
    with pytest.raises(OSError, match=r"SLOW_DOWN, and so for 6[0-5] s"):
        objectstores._persist(Failing(10_000))
    assert sum(clock) >= objectstores.PATIENCE_S


@pytest.mark.parametrize(
    "answer", ["AWS Error ACCESS_DENIED during", "AWS Error UNKNOWN (HTTP status 403) during"]
)
def test_who_may_not_is_told_at_once(clock: list[float], answer: str) -> None:
    failing = Failing(10_000, answer)
    with pytest.raises(OSError, match="and so for 0 s"):
        objectstores._persist(failing)
    assert failing.asked == 1
    assert not clock


def test_what_a_library_did_not_foresee_is_asked_again_as_well(clock: list[float]) -> None:
    errors = [pyarrow.ArrowException("Check for Hierarchical Namespace support")] * 2

    def ask() -> str:
        if errors:
            raise errors.pop()
        return "answer"

    assert objectstores._persist(ask) == "answer"
    assert len(clock) == 2


@pytest.mark.parametrize("mark", ["?", "&", "/"])
def test_no_error_names_the_signature_of_an_address(clock: list[float], mark: str) -> None:
    said = f"GetProperties failed for 'https://a.blob.core.windows.net/c/x{mark}sig=SECRET%3D'"
    with pytest.raises(OSError, match="GetProperties") as failed:
        objectstores._persist(Failing(10_000, said))
    told = "".join(traceback.format_exception(failed.value))
    assert "SECRET" not in told
    assert "a.blob.core.windows.net/c/x" in told


class Cutting:
    """A file system that publishes what it got of an upload that failed."""

    def __init__(self, failures: int) -> None:
        self.failures = failures
        self.files: dict[str, bytes] = {}

    def open_output_stream(self, path: str) -> Any:
        return _Cut(self, path)


class _Cut:
    def __init__(self, system: Cutting, path: str) -> None:
        self._system, self._path, self._content = system, path, b""

    def __enter__(self) -> _Cut:
        return self

    def write(self, content: bytes) -> None:
        if self._content and self._system.failures > 0:
            self._system.failures -= 1
            message = "SLOW_DOWN"
            raise OSError(message)
        self._content += content

    def __exit__(self, *error: object) -> None:
        self._system.files[self._path] = self._content


def test_the_name_that_is_told_is_never_that_of_a_part(clock: list[float]) -> None:
    system, names = Cutting(failures=2), iter("abc")
    store = objectstores.ObjectStore("s3a://lake/clicks", system, "lake/clicks")
    upload = store.create(lambda: next(names))
    content = b"x" * (20 << 20)
    upload.write(content)
    assert upload.close() == "c"
    sizes = {name: len(there) for name, there in system.files.items()}
    assert sizes == {"lake/clicks/a": 8 << 20, "lake/clicks/b": 8 << 20, "lake/clicks/c": 20 << 20}


@pytest.mark.parametrize("given", ["sv=1&sig=x", "?sv=1&sig=x"])
def test_a_token_of_azure_may_be_written_with_and_without_its_mark(given: str) -> None:
    access = Access(frozenset({("fs.azure.sas.fixed.token", given)}))
    opening = objectstores.find_opening("abfss://c@acc.dfs.core.windows.net/a", access)
    assert opening.options["sas_token"] == "?sv=1&sig=x"  # noqa: S105 - it opens nothing


@pytest.mark.parametrize(
    ("host", "region"),
    [
        ("s3.amazonaws.com", None),
        ("s3.eu-west-1.amazonaws.com", "eu-west-1"),
        ("s3-us-west-2.amazonaws.com", "us-west-2"),
        ("s3.dualstack.ap-south-1.amazonaws.com", "ap-south-1"),
        ("s3-fips.us-gov-west-1.amazonaws.com", "us-gov-west-1"),
        ("s3.cn-north-1.amazonaws.com.cn", "cn-north-1"),
        ("bucket.vpce-1a2b-3c.s3.us-west-2.vpce.amazonaws.com", "us-west-2"),
        ("minio.storage.svc:9000", "us-east-1"),
        ("s3.eu-west-1.example.com", "us-east-1"),
    ],
)
def test_awss_endpoints_say_their_region_or_leave_it_to_aws(
    monkeypatch: pytest.MonkeyPatch, host: str, region: str | None
) -> None:
    monkeypatch.delenv("AWS_REGION", raising=False)
    access = Access(frozenset({("fs.s3a.endpoint", f"https://{host}")}))
    assert objectstores.find_opening("s3a://lake/a", access).options.get("region") == region
