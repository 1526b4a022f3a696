"""Of several operators one acts, and none before the last one has stopped."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from apiserver import ApiServer, path_of, write_kubeconfig
from kubernetes.config import kube_config
from loopback import serve

from balancedstream_operator.errors import UnreachableError
from balancedstream_operator.kube import lease as leases
from balancedstream_operator.kube.client import connect
from balancedstream_operator.kube.lease import LEASE_S, Lease, hold

PATH = path_of("Lease", "bst")


@pytest.fixture
def server() -> ApiServer:
    return ApiServer()


@pytest.fixture
def candidate(
    server: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[str], Lease]]:
    """Returns a function that makes a candidate with an identity."""
    with serve(server.answer) as url:
        path = tmp_path / "kubeconfig"
        path.write_text(write_kubeconfig(url), "utf-8")
        monkeypatch.setattr(kube_config, "KUBE_CONFIG_DEFAULT_LOCATION", str(path))
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
        yield lambda identity: Lease(connect(), "shop", "bst", identity)


def test_the_first_holds_it_and_the_second_waits_until_it_expires(
    server: ApiServer, candidate: Callable[[str], Lease]
) -> None:
    first, second = candidate("first"), candidate("second")
    assert first.try_to_hold(0.0)
    assert not second.try_to_hold(1_000.0), "the second has its own clock, and looks first"
    assert first.try_to_hold(10.0)
    assert not second.try_to_hold(1_014.0), "it was renewed in between"
    assert not second.try_to_hold(1_014.0 + LEASE_S - 0.1)
    assert second.try_to_hold(1_014.0 + LEASE_S)
    assert server.objects[PATH]["spec"]["holderIdentity"] == "second"
    assert server.objects[PATH]["spec"]["leaseTransitions"] == 2
    assert not first.try_to_hold(31.0), "it has lost it"


def test_a_lease_that_is_given_back_is_free_at_once(candidate: Callable[[str], Lease]) -> None:
    first, second = candidate("first"), candidate("second")
    assert first.try_to_hold(0.0)
    second.release()
    assert not second.try_to_hold(0.0), "only its holder can give it back"
    first.release()
    assert second.try_to_hold(0.1)


def test_of_two_that_take_it_at_the_same_time_one_has_it(
    server: ApiServer, candidate: Callable[[str], Lease], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = candidate("first"), candidate("second")
    free = {"kind": "Lease", "metadata": {"resourceVersion": "0"}, "spec": {"holderIdentity": ""}}
    for held in (None, free):
        server.objects.pop(PATH, None)
        if held is not None:
            server.objects[PATH] = held
        # Both have read what was there before either writes.
        monkeypatch.setattr(second, "_read", lambda held=held: held)
        assert first.try_to_hold(0.0)
        assert not second.try_to_hold(0.0)
        assert server.objects[PATH]["spec"]["holderIdentity"] == "first"


def test_a_server_that_does_not_answer_is_no_lost_lease(
    server: ApiServer, candidate: Callable[[str], Lease]
) -> None:
    first = candidate("first")
    assert first.try_to_hold(0.0)
    server.refusals[PATH] = 503, "unavailable"
    with pytest.raises(UnreachableError):
        first.try_to_hold(2.0)


class ScriptedLease(Lease):
    """A Lease that is held or not as it is told; the server says nothing where it is None."""

    def __init__(self, *answers: bool | None) -> None:
        self._answers = [*answers]
        self.asked = 0

    def try_to_hold(self, monotonic_s: float) -> bool:
        """The next answer; the last one stays."""
        self.asked += 1
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if answer is None:
            message = "the API server cannot be reached"
            raise UnreachableError(message)
        return answer


ENOUGH = 20
"""Renewals after which nothing new happens."""


def hold_for_a_while(lease: ScriptedLease) -> list[str]:
    """What happens while an operator holds, or waits for, a Lease."""
    happened: list[str] = []

    async def go() -> None:
        holding = asyncio.create_task(
            hold(lease, lambda: happened.append("acts"), lambda: happened.append("stops"))
        )
        while not holding.done() and lease.asked < ENOUGH:
            await asyncio.sleep(0.01)
        holding.cancel()

    asyncio.run(go())
    return happened


@pytest.mark.parametrize(
    ("answers", "deadline_s", "expected"),
    [
        ((False,), 60.0, []),
        ((False, False, True), 60.0, ["acts"]),
        ((None, None, True, None, True), 60.0, ["acts"]),
        ((True, False), 60.0, ["acts", "stops"]),
        ((True, None), 0.05, ["acts", "stops"]),
    ],
)
def test_an_operator_acts_while_it_holds_the_lease_and_stops_when_it_may_have_lost_it(
    monkeypatch: pytest.MonkeyPatch,
    answers: tuple[bool | None, ...],
    deadline_s: float,
    expected: list[str],
) -> None:
    monkeypatch.setattr(leases, "RENEW_S", 0.01)
    monkeypatch.setattr(leases, "DEADLINE_S", deadline_s)
    assert hold_for_a_while(ScriptedLease(*answers)) == expected


def test_an_error_of_ours_lets_no_operator_act_without_a_lease(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(leases, "RENEW_S", 0.01)
    monkeypatch.setattr(leases, "DEADLINE_S", 0.05)

    class BrokenLease(ScriptedLease):
        def try_to_hold(self, monotonic_s: float) -> bool:
            """The first answer comes, and then none that can be read."""
            if self.asked:
                self.asked += 1
                message = "leaseTransitions"
                raise KeyError(message)
            return super().try_to_hold(monotonic_s)

    assert hold_for_a_while(BrokenLease(True)) == ["acts", "stops"]


def test_a_holder_that_is_cancelled_as_an_answer_comes_renews_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def answer_at_once(function: Callable[..., bool], *arguments: float) -> bool:
        return function(*arguments)

    monkeypatch.setattr(leases, "RENEW_S", 0.01)
    monkeypatch.setattr(asyncio, "to_thread", answer_at_once)

    async def go() -> None:
        class CancelledLease(ScriptedLease):
            def try_to_hold(self, monotonic_s: float) -> bool:
                """The holder is cancelled between the second answer and its arrival."""
                if self.asked == 1:
                    asyncio.get_running_loop().call_soon(holding.cancel)
                return super().try_to_hold(monotonic_s)

        lease = CancelledLease(True)
        holding = asyncio.create_task(hold(lease, lambda: None, lambda: None))
        await asyncio.wait({holding}, timeout=1.0)
        assert holding.cancelled()
        assert lease.asked == 2

    asyncio.run(go())


def test_a_server_that_hangs_ends_a_holder_at_its_deadline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(leases, "RENEW_S", 0.01)
    monkeypatch.setattr(leases, "DEADLINE_S", 0.3)
    released = threading.Event()

    class HangingLease(ScriptedLease):
        def try_to_hold(self, monotonic_s: float) -> bool:
            """The first answer comes, and no other."""
            if self.asked:
                released.wait(60.0)
            return super().try_to_hold(monotonic_s)

    async def go() -> None:
        stopped = asyncio.Event()

        def stop() -> None:
            stopped.set()
            released.set()

        await hold(HangingLease(True), lambda: None, stop)
        assert stopped.is_set()

    asyncio.run(go())
