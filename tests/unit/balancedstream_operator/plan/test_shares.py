"""Limits over all streams brake those that grow, evenly, and take nothing away."""

from __future__ import annotations

import threading
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st
from supervised import KeepingCluster, Scene, conditions

from balancedstream_operator.api.resource import Stream
from balancedstream_operator.plan.shares import WANTED_S, Claim, Shares, read_claim, share_out
from balancedstream_operator.settings import Caps

A, B = Stream("shop", "a", "uid-a"), Stream("shop", "b", "uid-b")

CLAIMS = st.dictionaries(
    st.sampled_from("abcdef"),
    st.builds(
        Claim,
        has=st.integers(0, 12),
        least=st.integers(0, 6),
        wants=st.integers(0, 30),
        cores=st.integers(1, 8),
        memory_mib=st.sampled_from([0, 512, 1536, 9000]),
    ),
    min_size=1,
)
CAPS = st.builds(
    Caps, st.integers(0, 60), st.integers(0, 200), st.sampled_from([0, 20_000, 90_000])
)


def size(claim: Claim) -> tuple[int, int, int]:
    return 1, claim.cores, claim.memory_mib


def limits_of(caps: Caps) -> tuple[int, int, int]:
    return caps.executors, caps.cores, caps.memory_mib


@given(CLAIMS, CAPS)
@settings(max_examples=300)
@example({"a": Claim(0, 0, 9, 4), "b": Claim(0, 0, 9, 1)}, Caps(cores=10))
def test_what_is_shared_is_kept_limited_and_used_up(claims: dict[str, Claim], caps: Caps) -> None:
    granted = share_out(claims, caps)
    held = {name: max(claim.has, claim.least) for name, claim in claims.items()}
    used = [sum(granted[n] * size(claims[n])[i] for n in claims) for i in range(3)]
    before = [sum(held[n] * size(claims[n])[i] for n in claims) for i in range(3)]
    for name, claim in claims.items():
        assert held[name] <= granted[name] <= max(held[name], claim.wants)
    for i, limit in enumerate(limits_of(caps)):
        assert not limit or used[i] <= max(limit, before[i])
    # Nothing is left that somebody wants and that fits.
    for name, claim in claims.items():
        fits = all(
            not limit or used[i] + size(claim)[i] <= limit
            for i, limit in enumerate(limits_of(caps))
        )
        assert not (fits and granted[name] < claim.wants)
    assert share_out(dict(reversed(claims.items())), caps) == granted, "no order counts"


@given(CLAIMS, CAPS)
def test_who_wants_more_has_no_smaller_share_than_one_that_grew(
    claims: dict[str, Claim], caps: Caps
) -> None:
    limits = limits_of(caps)

    def share(name: str, count: int) -> float:
        sizes = size(claims[name])
        return max(
            (count * s / limit for s, limit in zip(sizes, limits, strict=True) if limit), default=0
        )

    granted = share_out(claims, caps)
    used = [sum(granted[n] * size(claims[n])[i] for n in claims) for i in range(3)]
    for poor, claim in claims.items():
        # One whose executors are no larger than those of another fits wherever that one did.
        for rich, other in claims.items():
            smaller = all(s <= t for s, t in zip(size(claim), size(other), strict=True))
            grew = granted[rich] > max(other.has, other.least)
            if smaller and grew and granted[poor] < claim.wants and rich != poor:
                assert share(rich, granted[rich] - 1) <= share(poor, granted[poor]), used


def resource(stream: Stream, **fields: Any) -> dict[str, Any]:
    metadata = {"namespace": stream.namespace, "name": stream.name, "uid": stream.uid}
    return {"metadata": metadata, "spec": {"executors": {"min": 1, "max": 9}}, **fields}


def ask(
    shares: Shares, stream: Stream, wants: int, known: list[dict[str, Any]], **given: Any
) -> int:
    most, why = shares.ask(
        stream,
        Claim(given.get("has", 1), 1, wants),
        known,
        given.get("now_s", 0.0),
        takes=given.get("takes", True),
        waits=given.get("waits", True),
    )
    return most if why else wants


def test_what_one_is_due_is_kept_free_for_it_for_a_while() -> None:
    shares, known = Shares(Caps(8)), [resource(A), resource(B)]
    assert ask(shares, B, 9, known, takes=False) == 7, "nobody else wants any"
    assert ask(shares, A, 9, known) == 4, "half of it is kept for the other"
    assert ask(shares, A, 9, known, has=4, now_s=WANTED_S) == 7, "which did not come for it"


def test_who_only_advises_keeps_nothing_from_others() -> None:
    shares, known = Shares(Caps(8)), [resource(A), resource(B)]
    assert ask(shares, B, 9, known, takes=False, waits=False) == 7
    assert ask(shares, A, 9, known) == 7


def test_after_a_restart_the_status_says_what_streams_have() -> None:
    known = [resource(A), resource(B, status={"desiredExecutors": 5})]
    assert ask(Shares(Caps(8)), A, 9, known) == 3
    suspended = resource(B, spec={"suspend": True}, status={"desiredExecutors": 5})
    assert ask(Shares(Caps(8)), A, 9, [resource(A), suspended]) == 8
    assert ask(Shares(Caps(8)), A, 9, [resource(A)]) == 8, "one that is deleted has nothing"


WORDS = st.sampled_from(
    [
        "spec",
        "executors",
        "status",
        "min",
        "cores",
        "memory",
        "memoryOverhead",
        "suspend",
        "desiredExecutors",
    ]
)
ANYTHING: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.just("2g"),
    lambda inner: st.dictionaries(WORDS, inner),
)


@given(ANYTHING)
def test_no_object_of_a_tenant_breaks_the_sharing(content: Any) -> None:
    hostile = {**(content if isinstance(content, dict) else {"spec": content})}
    hostile["metadata"] = {"namespace": "evil", "name": "b", "uid": "uid-b"}
    claim = read_claim(hostile)
    assert 0 <= claim.least <= claim.has <= 10_000
    assert ask(Shares(Caps(100_000)), A, 9, [resource(A), hostile]) == 9


def test_passes_at_the_same_time_take_no_more_than_there_is() -> None:
    streams = [Stream("shop", f"s{n}", f"uid-{n}") for n in range(16)]
    known = [resource(stream) for stream in streams]
    shares, had = Shares(Caps(40)), dict.fromkeys(streams, 1)

    def grow(stream: Stream) -> None:
        for _ in range(20):
            had[stream] = ask(shares, stream, 9, known, has=had[stream])

    threads = [threading.Thread(target=grow, args=(stream,)) for stream in streams]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(had.values()) == 40


def test_a_stream_says_what_the_limits_leave_and_gets_the_rest_when_others_are_gone() -> None:
    cluster, shares = KeepingCluster(), Shares(Caps(executors=5))
    one = Scene(cluster=cluster, shares=shares)
    other = Scene(
        Stream("shop", "other", "uid-2"), cluster=cluster, shares=shares,
        executors={"min": 2, "max": 4},
    )  # fmt: skip
    one.resource["spec"]["executors"] = {"min": 2, "max": 6, "fixed": 6}
    assert other.find_streams()
    one.run_until_running()
    done = one.run_pass()
    assert done.status["desiredExecutors"] == 3
    assert conditions(done)["ScalingLimited"] == ("True", "SharedLimit")
    (limited,) = [c for c in done.status["conditions"] if c["type"] == "ScalingLimited"]
    assert (
        "6 are wanted, and the operator's limits over all streams (5 executors) leave 3"
        in (limited["message"])
    )
    del cluster.objects["BalancedStream", "other"]
    one.executors = {"1": 1, "2": 1, "3": 1}
    one.finish_batches()
    assert one.run_pass().status["desiredExecutors"] == 5


def test_a_minimum_is_kept_whatever_the_limits_say() -> None:
    scene = Scene(shares=Shares(Caps(executors=1)))
    scene.run_until_running()
    scene.resource["spec"]["executors"] = {"min": 4, "max": 6}
    scene.finish_batches()
    assert scene.run_pass().status["desiredExecutors"] == 4


def test_as_many_are_added_as_fit() -> None:
    # apache/flink-kubernetes-operator#789: nothing was, where not all that were wanted did.
    assert share_out({"a": Claim(2, 1, 9, cores=4)}, Caps(cores=30)) == {"a": 7}


def test_what_is_given_back_is_there_for_others() -> None:
    # apache/flink-kubernetes-operator#751: a view of what is used must see what is given back.
    shares, known = Shares(Caps(8)), [resource(A), resource(B)]
    assert ask(shares, A, 7, known) == 7
    assert ask(shares, B, 7, known, takes=False) == 1
    assert ask(shares, A, 3, known, has=7, takes=False) == 3, "it is asked to scale in"
    assert ask(shares, A, 3, known, has=3) == 3, "and has"
    assert ask(shares, B, 7, known) == 5
