"""Python functions on executors: those of running queries, and those that warm workers up for them.

The latter are pickled whole: executors need not have this package.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.serializers import CloudPickleSerializer
from pyspark.sql import SparkSession

if TYPE_CHECKING:
    import pandas as pd


def list_functions(spark: SparkSession) -> list[bytes]:
    """The pickled functions in the last plans of a session's running queries, without repeats.

    Spark keeps them in the plan's expressions (`PythonUDF`), with each operator that calls one.

    Args:
        spark: a running session of this process, not of Spark Connect.
    """
    jvm: Any = spark._jvm
    to_bytes = jvm.scala.reflect.ClassTag.Byte()
    found: dict[bytes, None] = {}
    for query in spark.streams.active:
        execution = query._jsq.streamingQuery().lastExecution()
        if execution is None:
            continue
        for expression in _walk(execution.executedPlan()):
            if expression.getClass().getSimpleName() == "PythonUDF":
                found[bytes(expression.func().command().toArray(to_bytes))] = None
    return list(found)


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


def _make_loader(functions: Sequence[bytes]) -> Callable[[], None]:
    """Loads functions with what they import."""

    def load() -> None:
        for function in functions:
            try:
                CloudPickleSerializer().loads(function)
            except Exception:  # noqa: S112
                # Its own task says why, or has the broadcast value that is missing here.
                continue

    return load


def _walk(plan: Any) -> Iterator[Any]:
    """The expressions of a plan, and those within them."""
    plans, expressions = [plan], []
    while plans:
        node = plans.pop()
        plans.extend(_list(node.children()))
        expressions.extend(_list(node.expressions()))
    while expressions:
        expression = expressions.pop()
        yield expression
        expressions.extend(_list(expression.children()))


def _list(elements: Any) -> list[Any]:
    return [elements.apply(i) for i in range(elements.size())]
