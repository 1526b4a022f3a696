"""The hidden column that sends rows of reassigned keys to their partition."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as sf

from balancedstream.keyed.encoding import KeyEncoding
from balancedstream.keyed.storage import BatchContext, Operator
from balancedstream.workers.garbage import spare_loaded_modules
from balancedstream.workers.schemas import quote


def route_by(columns: Sequence[str], operator: Operator, encoding: KeyEncoding) -> Column:
    """The route of each row's key in the micro-batch's epoch.

    Spark treats the values as deterministic, and they are: they depend on the key and on the epoch
    that the offset log names for the batch.
    """
    route: Callable[..., Column] = sf.arrow_udf(_make_router(operator, encoding), "int")
    return route(*(sf.col(quote(column)) for column in columns))


def _make_router(operator: Operator, encoding: KeyEncoding) -> Any:
    def route(*keys: pa.Array) -> pa.Array:
        spare_loaded_modules()
        context = BatchContext(operator)
        if not context.epoch.routes:
            return pa.array(np.zeros(len(keys[0]), np.int32))
        of_key = _freeze_once(context, encoding)
        return pa.array([of_key.get(key, 0) for key in encoding.freeze_columns(keys)], pa.int32())

    # Spark needs the types, not the text of the annotations.
    route.__annotations__ = {"keys": pa.Array, "return": pa.Array}
    return route


def _freeze_once(context: BatchContext, encoding: KeyEncoding) -> dict[Any, int]:
    """The epoch's routes by frozen key, cached: a worker routes many Arrow batches by one epoch."""
    key = context.checkpoint, context.table
    if key not in _frozen:
        _frozen.clear()
        routes = context.epoch.routes
        _frozen[key] = {encoding.freeze(text): route for text, route in routes.items()}
    return _frozen[key]


_frozen: dict[tuple[str, str], dict[Any, int]] = {}
