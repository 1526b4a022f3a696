"""How a stream gets another number of state partitions: the steps, and when each is over; pure.

The driver ends its queries between two batches, a Job writes their state anew, and the driver
starts again. What fails is undone, and then the driver starts as before. Each pass sees what is
there, and goes on from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal, get_args

from balancedstream.core.wire.stopping import Stop, Stopped

Step = Literal["stopping", "rewriting", "undoing", "starting", "done", "failed", "refused"]

STEPS = get_args(Step)

DEAF_AFTER_S = 900.0
"""A driver that follows plans and has said nothing of a stop for so long does not know of stops."""

AGAIN_AFTER_S = 300.0
"""What is half done and cannot be undone is finished once more, so long after it was tried last."""

WATCHED_S = 60.0
"""After its first batch, the driver is watched for so long."""


@dataclass(frozen=True, slots=True)
class Repartition:
    """A change of the number of state partitions, as far as it is.

    Attributes:
        before: number of state partitions before.
        wanted: number that is asked for.
        step: what is done now, or how it ended.
        asked_s: when it began, or was tried again, seconds since the Unix epoch.
        checkpoints: paths of the checkpoints, once the driver ends the queries that have them.
        stopped_s: since when no query runs; None while they do.
        ran_s: when the first batch after it was seen; None before.
        rewritten: whether the state has the wanted number.
        why: why it failed or was refused; empty if it was not. Of one that is tried again, why.
    """

    before: int
    wanted: int
    step: Step
    asked_s: float
    checkpoints: tuple[str, ...] = ()
    stopped_s: float | None = None
    ran_s: float | None = None
    rewritten: bool = False
    why: str = ""

    @property
    def id(self) -> str:
        """Tells it from others of the same stream."""
        return f"{self.asked_s:.3f}"

    @property
    def present(self) -> int:
        """The number of state partitions that there are now."""
        return self.wanted if self.rewritten else self.before

    @property
    def is_over(self) -> bool:
        """Whether nothing more is done."""
        return self.step in {"done", "failed", "refused"}

    @property
    def holds_driver(self) -> bool:
        """Whether no driver may run, because the checkpoint is being changed."""
        return self.step in {"rewriting", "undoing"}

    @property
    def stop(self) -> Stop | None:
        """What the driver is told; None for nothing."""
        ends = self.step == "stopping" or self.holds_driver
        return Stop(self.id, self.wanted) if ends else None

    @property
    def ends_queries(self) -> bool:
        """Whether queries end or have ended, so that nothing else is to change.

        The driver begins with that only after the first batch of each, for which it may wait long.
        """
        return self.stop is not None and bool(self.checkpoints)

    @property
    def downtime_s(self) -> float | None:
        """For how long no query ran; None before that is over.

        >>> Repartition(4, 16, "done", 0.0, stopped_s=10.0, ran_s=55.0).downtime_s
        45.0
        """
        if self.stopped_s is None or self.ran_s is None:
            return None
        return max(0.0, self.ran_s - self.stopped_s)


@dataclass(frozen=True, slots=True)
class JobSeen:
    """The Job of a step.

    Attributes:
        state: whether it is over, and how; a Job is over when its pods are.
        said: the last words of its pod, or why there is no pod that runs.
    """

    state: Literal["running", "succeeded", "failed"]
    said: str = ""


@dataclass(frozen=True, slots=True)
class Sight:
    """What a pass sees before it decides on the next step.

    Attributes:
        wanted: `spec.partitions`; None without one.
        held: why nothing new begins now; empty if it may.
        suspended: whether `spec.suspend` is true.
        refused: why the spec allows no other number; empty if it does.
        follows: whether a driver runs and follows plans.
        told: what the driver says of this stop; None if nothing.
        job: of the present step; None if there is none.
        unmade: whether it is known that the Job was never made.
        fails: why the driver does not get to its first batch; empty if it may yet.
        ran_s: when the newest batch of a driver that runs ended, or that it waits for rows; None
            if neither was seen.
    """

    wanted: int | None
    held: str = ""
    suspended: bool = False
    refused: str = ""
    follows: bool = False
    told: Stopped | None = None
    job: JobSeen | None = None
    unmade: bool = False
    fails: str = ""
    ran_s: float | None = None


def advance(
    known: Repartition | None, present: int, sight: Sight, now_s: float
) -> Repartition | None:
    """The next step; the same one while it is not over.

    Args:
        known: the present step; None if nothing was asked for.
        present: number of state partitions without a change.
        sight: what there is.
        now_s: seconds since the Unix epoch.

    >>> advance(None, 4, Sight(16), 0.0).step
    'stopping'
    >>> advance(None, 4, Sight(4), 0.0)
    """
    if known is None or known.is_over:
        return _begin(known, present, sight, now_s)
    if known.step == "stopping":
        return _stop(known, sight, now_s)
    if known.step == "starting":
        return _start(known, sight, now_s)
    return _rewrite(known, sight, now_s)


def _begin(
    known: Repartition | None, present: int, sight: Sight, now_s: float
) -> Repartition | None:
    wanted = sight.wanted
    if known is not None and known.wanted == wanted:
        return known  # It ended; another number, or the old one, ends that.
    if wanted is None or wanted == present:
        return known if known is not None and known.step == "done" else None
    asked = Repartition(present, wanted, "stopping", now_s)
    if sight.refused:
        return replace(asked, step="refused", why=sight.refused)
    return known if sight.suspended or sight.held else asked


def _stop(known: Repartition, sight: Sight, now_s: float) -> Repartition | None:
    asked = _follow_spec(known, sight)
    told = sight.told
    if asked is None or told is None:
        if asked is None or sight.suspended:
            return None
        if sight.follows and now_s - known.asked_s > DEAF_AFTER_S:
            why = (
                "the driver follows plans, and has not said whether it can end its queries: its "
                "image has an older release of balancedstream, which cannot. Build the image on "
                "the operator's release"
            )
            return replace(asked, step="refused", why=why)
        return asked
    if told.refused:
        return replace(asked, step="refused", why=told.refused)
    if told.done:
        return replace(asked, step="rewriting", checkpoints=told.checkpoints, stopped_s=now_s)
    return None if sight.suspended else replace(asked, checkpoints=told.checkpoints)


def _follow_spec(known: Repartition, sight: Sight) -> Repartition | None:
    """The change to the number that is asked for by now; None if that is the old one."""
    if sight.wanted is None or sight.wanted == known.before:
        return None
    return replace(known, wanted=sight.wanted)


def _rewrite(known: Repartition, sight: Sight, now_s: float) -> Repartition | None:
    job = sight.job
    if job is None:
        return _await_job(known, sight)
    if job.state == "running":
        return known
    if known.step == "rewriting":
        if job.state == "succeeded":
            return replace(known, step="starting", rewritten=True, why="")
        return replace(known, step="undoing", why=job.said or "its Job failed, and said nothing")
    if job.state == "succeeded":
        return replace(known, step="starting", rewritten=False)
    why = f"{known.why.rstrip('.')}. It could not be undone: {job.said}"
    if known.rewritten:
        return replace(known, step="starting", why=why)
    # No query starts on what is half done, so that only finishing it is left.
    is_early = 0.0 <= now_s - known.asked_s < AGAIN_AFTER_S
    return known if is_early else replace(known, step="rewriting", asked_s=now_s, why=why)


def _await_job(known: Repartition, sight: Sight) -> Repartition | None:
    """The step while there is no Job: none yet, or none any more."""
    asked = _follow_spec(known, sight)
    if known.step == "undoing" or known.why or asked == known:
        return known
    if sight.unmade:
        return asked
    why = "spec.partitions was changed before it was done"
    return replace(known, step="undoing", why=why)


def _start(known: Repartition, sight: Sight, now_s: float) -> Repartition:
    if known.ran_s is None and sight.ran_s is None:
        if sight.fails and not known.why:
            why = f"the driver does not start with {known.wanted} state partitions: {sight.fails}"
            return replace(known, step="undoing", why=why)
        if sight.fails:
            return replace(known, step="failed", why=f"{known.why.rstrip('.')}. {sight.fails}")
        return known
    if known.ran_s is None and sight.ran_s is not None:
        # By the driver's clock, if that can be.
        is_after = (known.stopped_s or 0.0) <= sight.ran_s <= now_s
        known = replace(known, ran_s=sight.ran_s if is_after else now_s)
    if known.ran_s is not None and 0.0 <= now_s - known.ran_s < WATCHED_S:
        return known
    return replace(known, step="failed" if known.why else "done")


def is_later(found: Repartition, known: Repartition) -> bool:
    """Whether a step comes after another one, of the same change or of a later one.

    >>> known = Repartition(4, 16, "undoing", 5.0)
    >>> is_later(replace(known, step="rewriting"), known), is_later(known, known)
    (False, False)
    """
    return (found.asked_s, STEPS.index(found.step)) > (known.asked_s, STEPS.index(known.step))


def describe(known: Repartition) -> str:
    """What is done, or how it ended, for people.

    >>> describe(Repartition(4, 16, "done", 0.0, stopped_s=10.0, ran_s=55.0))
    '4 -> 16 state partitions: done; the stream stood still for 45 s'
    """
    stood = ""
    if known.downtime_s is not None:
        stood = f"; the stream stood still for {known.downtime_s:.0f} s"
    said = {
        "stopping": "the queries end after the batch that each is at"
        if known.checkpoints
        else "the driver is asked to end its queries, and does so after the first batch of each",
        "rewriting": "the stream stands still; a Job writes the state anew",
        "undoing": f"it failed ({known.why}); the stream stands still, and a Job undoes it",
        "starting": "the driver starts again, and its first batches are watched",
        "done": f"done{stood}",
        "failed": f"failed: {known.why}{'' if known.why.endswith('.') else '.'} The stream has "
        f"{known.present} state partitions{stood}. Another spec.partitions asks anew",
        "refused": f"refused: {known.why}{'' if known.why.endswith('.') else '.'} The stream runs "
        f"on with {known.before} state partitions. Another spec.partitions asks anew",
    }[known.step]
    if known.step == "rewriting" and known.why:
        said = f"it failed ({known.why}); the stream stands still, and a Job finishes it"
    if known.step == "starting" and known.why:
        said = f"it failed ({known.why}); the driver starts again with {known.present}"
    return f"{known.before} -> {known.wanted} state partitions: {said}"


def write_repartition(known: Repartition) -> dict[str, Any]:
    """As a mapping that JSON can say."""
    return asdict(known)


def read_repartition(given: object) -> Repartition | None:
    """The same again, as far as this release knows it; None if it is none.

    >>> known = Repartition(4, 16, "rewriting", 5.0, checkpoints=("/c/q",))
    >>> read_repartition(write_repartition(known)) == known
    True
    >>> read_repartition({"step": "dancing"})
    """
    if not isinstance(given, Mapping):
        return None
    named = {entry.name: given[entry.name] for entry in fields(Repartition) if entry.name in given}
    try:
        found = Repartition(**named)
        found = replace(found, checkpoints=tuple(map(str, found.checkpoints)))
        times = (found.asked_s, found.stopped_s or 0.0, found.ran_s or 0.0)
        # A clock may be wrong by any time, and what is written must be read again all the same.
        whole = all(isinstance(n, int | float) for n in (found.before, found.wanted, *times))
        whole = whole and min(found.before, found.wanted) > 0
        return found if whole and found.step in STEPS and isinstance(found.why, str) else None
    except TypeError:
        return None
