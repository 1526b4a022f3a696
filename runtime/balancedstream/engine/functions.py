"""Python functions on executors: those of running queries, and those that warm workers up for them.

The latter are pickled whole: executors need not have this package.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from pyspark.serializers import CloudPickleSerializer

from balancedstream.engine.driver import DriverSession
from balancedstream.engine.jvm.listener import compile_class

if TYPE_CHECKING:
    import pandas as pd

_T = TypeVar("_T")

ARROW_UDF = 101
FIRST_OF_FRAMES = 200
"""Of Spark's `PythonEvalType`: functions below get rows, others frames of pandas or of Arrow."""


@dataclass(frozen=True)
class PythonFunctions:
    """The pickled functions of running queries.

    Attributes:
        of_states: processors of `transformWithState`, for which Spark has workers of their own.
        others: all others.
        types: the `PythonEvalType` of each of the others.
    """

    of_states: tuple[bytes, ...]
    others: tuple[bytes, ...]
    types: frozenset[int]

    @property
    def in_frames(self) -> bool:
        """Whether any of the others gets frames."""
        return any(each >= FIRST_OF_FRAMES for each in self.types)

    @property
    def in_arrow(self) -> bool:
        """Whether any of the others gets rows that Spark sends by Arrow."""
        return ARROW_UDF in self.types


def list_functions(spark: DriverSession) -> PythonFunctions:
    """The functions of all running queries of an application, but for those in `foreachBatch`.

    `spark` is a session of this process, not of Spark Connect.

    Raises:
        py4j.protocol.Py4JError: this version of Spark has no such class or method.
    """
    session: Any = spark._jsparkSession
    queries = session.sharedState().activeStreamingQueries()
    found = compile_class(spark, "PythonFunctions", queries).find()
    of_states, others, types = [], [], set()
    for operator, eval_type, pickled in found:
        if operator.startswith("TransformWithStateIn"):
            of_states.append(bytes(pickled))
        else:
            others.append(bytes(pickled))
            types.add(eval_type)
    return PythonFunctions(tuple(of_states), tuple(others), frozenset(types))


def make_loader(pickled: Sequence[bytes]) -> Callable[[_T], _T]:
    """A function that gives its input back; called first, it loads functions and what they import.

    It serves as a UDF, and for `mapInPandas`.
    """
    functions = list(pickled)

    def load(value: _T) -> _T:
        for function in functions:
            try:
                CloudPickleSerializer().loads(function)
            except Exception:  # noqa: S112
                # Its own task says why, or has the broadcast value that is missing here.
                continue
        functions.clear()
        return value

    return load


def make_processor(functions: Sequence[bytes]) -> Any:
    """A `StatefulProcessor` that loads pickled functions, and remembers each key."""
    import pandas as pd  # noqa: PLC0415
    from pyspark.sql.streaming import StatefulProcessor  # noqa: PLC0415

    load = make_loader(functions)

    class Remembering(StatefulProcessor):  # type: ignore[misc]
        def init(self, handle: Any) -> None:
            self._seen = load(handle).getValueState("seen", "seen boolean")

        def handleInputRows(  # noqa: N802
            self,
            key: tuple[Any, ...],
            rows: Iterator[pd.DataFrame],
            timerValues: Any,  # noqa: N803
        ) -> Iterator[pd.DataFrame]:
            for _ in rows:
                self._seen.update((True,))
            yield pd.DataFrame({"k": [key[0]]})

        def close(self) -> None:
            """Nothing is held."""

    return Remembering()
