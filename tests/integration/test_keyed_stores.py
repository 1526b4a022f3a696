"""Keys' files are in a real object store, also if it is slow, fails, or stays away."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from harness.storage.faulty import FaultyStore
from harness.storage.objects import describe_access, serve_objects

from balancedstream.core.keys.epochs import Epoch
from balancedstream.errors import CheckpointError
from balancedstream.keyed import objectstores
from balancedstream.keyed.objectstores import Access
from balancedstream.keyed.storage import KEPT_EPOCHS, Home, Operator

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(not shutil.which("go"), reason="the S3 server is compiled with Go"),
]

LARGE = 3 * objectstores._SPOOLED_BYTES // 2
EPOCH = Epoch(4, 9, {'"é"': 2})


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("objects") / "lake"
    folder.mkdir()
    return folder


@pytest.fixture(scope="module")
def server(bucket: Path) -> Iterator[str]:
    with serve_objects(bucket.parent) as url:
        yield url


@pytest.fixture
def proxy(server: str) -> Iterator[FaultyStore]:
    with closing(FaultyStore("127.0.0.1", server)) as store:
        yield store


def open_home(url: str, checkpoint: str = "s3a://lake/app", **others: str) -> Home:
    return Home(checkpoint, Operator("keys", give(url, **others)))


def give(url: str, **others: str) -> Access:
    own = {f"fs.s3a.{name.replace('__', '.')}": value for name, value in others.items()}
    return Access(frozenset((describe_access(url) | own).items()))


def hand_over(home: Home, batch: int, *states: bytes) -> tuple[str, dict[str, tuple[int, int]]]:
    writer = home.open_handoff(batch, 0, 0)
    for number, state in enumerate(states):
        writer.add(f"k{number}", state)
    writer.close()
    return writer.file, writer.pieces


def test_what_was_written_is_read_and_what_is_outdated_goes(server: str, bucket: Path) -> None:
    home = open_home(server)
    epochs = [home.write_epoch(Epoch(number)) for number in range(1, KEPT_EPOCHS + 4)]
    assert home.read_epoch(epochs[2]) == Epoch(3)
    states = (b"one", b"", bytes(LARGE), b"last")
    file, pieces = hand_over(home, 7, *states)
    read = [home.read_handoff(file, *place) for place in pieces.values()]
    assert read == [*states]
    (bucket / "app" / "offsets").mkdir()
    for batch in (3, 8):
        offset = f'{{"balancedstream":"keys","epoch":3,"table":"{epochs[2]}"}}'
        (bucket / "app" / "offsets" / str(batch)).write_text(f"v1\n{{}}\n{offset}\n")
    assert home.find_next_batch() == 9
    assert home.read_epoch_of(8) == Epoch(3)
    assert home.remove_outdated(9)
    assert not home.remove_outdated(10)
    ours = bucket / "app" / "balancedstream" / "keys"
    assert not [*(ours / "handoffs").glob("*.state")]
    assert {path.name for path in (ours / "epochs").glob("*.json")} == {*epochs[2:]}


def test_what_is_not_there_is_told_from_a_store_that_fails(server: str) -> None:
    home = open_home(server, "s3a://lake/empty")
    assert home.find_next_batch() == 0
    with pytest.raises(CheckpointError, match=r"does not find it; no row was processed"):
        home.check_presence()
    with pytest.raises(CheckpointError, match=r"cannot be read .*put the whole checkpoint back"):
        home.read_epoch("1-000000000000.json")
    with pytest.raises(CheckpointError, match=r"is gone, .*no state is lost"):
        home.read_handoff("1-0-0-000000000000.state", 0, 1)
    file, _ = hand_over(home, 7, b"state")
    for offset in (0, 3, 9):
        with pytest.raises(CheckpointError, match=f"ends before byte {offset + 6}"):
            home.read_handoff(file, offset, 6)


def test_nobody_sees_a_file_before_it_is_complete(server: str, bucket: Path) -> None:
    home = open_home(server, "s3a://lake/halves")
    writer = home.open_handoff(7, 0, 0)
    writer.add("k", bytes(LARGE))
    assert not [*(bucket / "halves").rglob("*.state")]
    writer.close()
    assert [path.name for path in (bucket / "halves").rglob("*.state")] == [writer.file]


def test_who_is_not_known_is_told_at_once(server: str) -> None:
    home = open_home(server, secret__key="wrong")  # noqa: S106
    with pytest.raises(CheckpointError, match=r"SIGNATURE_DOES_NOT_MATCH.*and so for 0 s"):
        home.find_next_batch()


def test_a_store_that_takes_longer_than_pyarrow_waits_is_waited_for(proxy: FaultyStore) -> None:
    home = open_home(proxy.url)
    proxy.delay_s = 4.0
    name = home.write_epoch(EPOCH)
    assert home.read_epoch(name) == EPOCH


def test_a_store_that_refuses_most_requests_and_then_all_loses_nothing(proxy: FaultyStore) -> None:
    home = open_home(proxy.url)
    proxy.refused_share = 0.3
    names = [home.write_epoch(Epoch(number)) for number in range(5)]
    assert [home.read_epoch(name).number for name in names] == [*range(5)]
    before = proxy.refused
    proxy.refuses = True
    threading.Timer(3.0, setattr, (proxy, "refuses", False)).start()
    file, pieces = hand_over(home, 7, b"state")
    assert home.read_handoff(file, *pieces["k0"]) == b"state"
    assert proxy.refused > before


@pytest.mark.parametrize("refuses", [True, False], ids=["refuses", "is gone"])
def test_a_store_that_stays_away_is_one_sentence_with_what_it_means(
    proxy: FaultyStore, monkeypatch: pytest.MonkeyPatch, refuses: bool
) -> None:
    monkeypatch.setattr(objectstores, "PATIENCE_S", 2.0)
    home = open_home(proxy.url)
    writer = home.open_handoff(7, 0, 0)
    writer.add("k", b"state")
    proxy.refuses = refuses
    if not refuses:
        proxy.close()
    meant = r"cannot be reached .*not committed and no state is lost: .*start it again when"
    for ask in (
        home.find_next_batch,
        writer.close,
        lambda: home.read_epoch("1-000000000000.json"),
        lambda: home.write_epoch(EPOCH),
    ):
        with pytest.raises(CheckpointError, match=meant):
            ask()
    assert home.remove_outdated(9), "what cannot be removed stays for a later batch"
