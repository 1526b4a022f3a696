"""How the operator has a driver end its queries between two batches, and what the driver says.

Both are keys of their own beside plan and answer, so that an older release overlooks them: its
driver goes on, and says nothing.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

from balancedstream.core.wire.strict_json import (
    check_array,
    check_integer,
    check_name,
    check_object,
    check_switch,
    read_json,
    refuse,
    write_json,
)
from balancedstream.errors import InvalidInputError


@dataclass(frozen=True, slots=True)
class Stop:
    """What a driver is asked for: no batch runs any more, because the state is to be written anew.

    Attributes:
        id: of this request; another one stands for another request.
        partitions: that the state is to have.
    """

    id: str
    partitions: int

    def __post_init__(self) -> None:
        check_name("stop.id", self.id)
        check_integer("stop.partitions", self.partitions, 1)

    def to_json(self) -> str:
        """As JSON.

        >>> Stop("a", 16).to_json()
        '{"id":"a","partitions":16}'
        """
        return write_json(asdict(self))


@dataclass(frozen=True, slots=True)
class Stopped:
    """What a driver says of such a request.

    Attributes:
        id: of the request.
        refused: why its queries run on; empty if they do not.
        checkpoints: paths of the checkpoints whose state is to be written anew.
        done: whether no query runs any more; each has committed the last batch that it began.
    """

    id: str
    refused: str = ""
    checkpoints: tuple[str, ...] = ()
    done: bool = False

    def __post_init__(self) -> None:
        check_name("stopped.id", self.id)
        check_switch("stopped.done", self.done)
        if not isinstance(self.refused, str):
            refuse("stopped.refused", "text", self.refused)
        for position, path in enumerate(self.checkpoints):
            check_name(f"stopped.checkpoints[{position}]", path)

    def to_json(self) -> str:
        """As JSON.

        >>> Stopped("a", checkpoints=("/c/q",), done=True).to_json()
        '{"checkpoints":["/c/q"],"done":true,"id":"a","refused":""}'
        """
        return write_json(asdict(self))


def parse_stop(text: str) -> Stop:
    """Reads a request.

    Raises:
        InvalidInputError: it is none; the message names the field.

    >>> parse_stop(Stop("a", 16).to_json())
    Stop(id='a', partitions=16)
    """
    names = ("id", "partitions")
    return Stop(**check_object("stop", read_json("stop", text), required=names, optional=()))


def find_stop(text: str) -> Stop | None:
    """The request in a text; None for nothing, and for what only a newer release can read.

    >>> find_stop(""), find_stop("{}"), find_stop(Stop("a", 16).to_json())
    (None, None, Stop(id='a', partitions=16))
    """
    try:
        return parse_stop(text) if text else None
    except InvalidInputError:
        return None


def parse_stopped(text: str) -> Stopped:
    """Reads what a driver says.

    Raises:
        InvalidInputError: it says something else; the message names the field.

    >>> parse_stopped(Stopped("a", refused="no").to_json()).refused
    'no'
    """
    names = ("id", "refused", "checkpoints", "done")
    fields = check_object("stopped", read_json("stopped", text), required=names, optional=())
    fields["checkpoints"] = check_array("stopped.checkpoints", fields["checkpoints"])
    return Stopped(**fields)
