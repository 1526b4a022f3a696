"""Python functions on executors: those of running queries, and those that warm workers up for them.

The latter are pickled whole: executors need not have this package.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.serializers import CloudPickleSerializer
from pyspark.sql import SparkSession

from balancedstream.engine.listener import compile_class

if TYPE_CHECKING:
    import pandas as pd

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


def list_functions(spark: SparkSession) -> PythonFunctions:
    """The functions of all running queries of an application, but for those in `foreachBatch`.

    Args:
        spark: a running session of this process, not of Spark Connect.

    Raises:
        py4j.protocol.Py4JError: this version of Spark has no such class or method.
    """
    session: Any = spark._jsparkSession
    queries = session.sharedState().activeStreamingQueries()
    needs = ("ScalaCollections", "RunningQueries")
    found = list(compile_class(spark, "PythonFunctions", queries, needs=needs).find())
    of_states = [f for f in found if f[0].startswith("TransformWithStateIn")]
    others = [f for f in found if not f[0].startswith("TransformWithStateIn")]
    return PythonFunctions(
        tuple(bytes(f[2]) for f in of_states),
        tuple(bytes(f[2]) for f in others),
        frozenset(f[1] for f in others),
    )


def make_loader(functions: Sequence[bytes]) -> Callable[[Any], Any]:
    """A function that loads pickled functions with what they import, and gives its input back."""
    load = _make_loader(functions)

    def give_back(value: Any) -> Any:
        load()
        return value

    return give_back


def make_mapper(
    functions: Sequence[bytes],
) -> Callable[[Iterable[pd.DataFrame]], Iterator[pd.DataFrame]]:
    """A function for `mapInPandas` that loads pickled functions, and gives its input back."""
    load = _make_loader(functions)

    def give_back(frames: Iterable[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        load()
        yield from frames

    return give_back


def make_processor(functions: Sequence[bytes]) -> Any:
    """A `StatefulProcessor` that loads pickled functions, and remembers each key."""
    import pandas as pd  # noqa: PLC0415
    from pyspark.sql.streaming import StatefulProcessor  # noqa: PLC0415

    load = _make_loader(functions)

    class Remembering(StatefulProcessor):  # type: ignore[misc]
        def init(self, handle: Any) -> None:
            load()
            self._seen = handle.getValueState("seen", "seen boolean")

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


def _make_loader(pickled: Sequence[bytes]) -> Callable[[], None]:
    """Loads functions with what they import, the first time that it is called."""
    functions = list(pickled)

    def load() -> None:
        for function in functions:
            try:
                CloudPickleSerializer().loads(function)
            except Exception:  # noqa: S112
                # Its own task says why, or has the broadcast value that is missing here.
                continue
        functions.clear()

    return load
