"""Spark's records of a query in its checkpoint: what the text of each file says."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

Format = Literal["1", "2"]
"""Of the state's versions: in 2, each commit of a store has an id of its own."""

FORMATS: dict[str, Format] = {"v1": "1", "v2": "2"}
"""The first line of a commit, to the format of the state. Others do not tell."""

PARTITIONS = "spark.sql.shuffle.partitions"

MARK = "balancedstream"
"""Field of the offset of a balanced operator's control source, with the operator's name."""


@dataclass(frozen=True, slots=True)
class PlannedBatch:
    """A micro-batch in the offset log.

    Attributes:
        conf: the settings that the query keeps from its first batch on.
        partitions: the number of state partitions.
        offsets: those offsets of the sources that are objects of JSON.
    """

    conf: Mapping[str, str]
    partitions: int
    offsets: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True, slots=True)
class OperatorRecord:
    """A stateful operator, as its metadata in the checkpoint describes it.

    Attributes:
        id: Spark's operator id within the query.
        name: Spark's short name, such as `stateStoreSave`.
        stores: names of its state stores; a stream-stream join has four.
    """

    id: int
    name: str
    stores: tuple[str, ...]


def parse_planned(text: str) -> PlannedBatch:
    r"""Reads a file of the offset log.

    Raises:
        ValueError: it is cut off, or has a format that is not known here.

    >>> parse_planned('v1\n{"conf":{"spark.sql.shuffle.partitions":"8"}}\n-\n{"x": 1}').partitions
    8
    """
    offsets = (*parse_offsets(text),)
    try:
        conf = json.loads(text.split("\n", 2)[1])["conf"]
        return PlannedBatch(dict(conf), int(conf[PARTITIONS]), offsets)
    except (KeyError, IndexError, TypeError) as error:
        message = "it lacks the settings of the query"
        raise ValueError(message) from error


def parse_offsets(text: str) -> Iterator[Any]:
    r"""The offsets of a batch's sources that are objects of JSON, as ours are.

    Raises:
        ValueError: the log is cut off, or has a format that is not known here.

    >>> [*parse_offsets('v1\n{}\n-\n{"a": 1}')], [*parse_offsets('v2\n{}\n1:{"a": 1}\n0:-')]
    ([{'a': 1}], [{'a': 1}])
    """
    # Not by `splitlines`: the name of a file in an offset may have what Unicode calls a line's end.
    version, _, *lines = text.split("\n")
    if version not in {"v1", "v2"}:
        message = f"its format is {version:.20}, and only v1 and v2 are known"
        raise ValueError(message)
    for line in lines:
        # From the second format on, each has its source's name or place before it.
        offset = line.partition(":")[2] if version == "v2" else line
        if offset.startswith("{"):
            # What another source writes is its own affair.
            with suppress(ValueError, RecursionError):
                yield json.loads(offset)


def parse_commit(text: str) -> Format:
    r"""The format of the state that a file of the commit log belongs to.

    Raises:
        ValueError: its first line names none that is known here.

    >>> parse_commit('v2\n{"nextBatchWatermarkMs":0,"stateUniqueIds":{}}')
    '2'
    """
    version = text.partition("\n")[0]
    if version not in FORMATS:
        message = f"its format is {version:.20}, and only {' and '.join(FORMATS)} are known"
        raise ValueError(message)
    return FORMATS[version]


def parse_operator(text: str) -> OperatorRecord:
    r"""Reads the metadata of an operator.

    Raises:
        ValueError: it is cut off, or is none.

    >>> parse_operator('v1\n{"operatorInfo":{"operatorId":0,"operatorName":"dedupe"},'
    ...     '"stateStoreInfo":[{"storeName":"default","numPartitions":3}]}')
    OperatorRecord(id=0, name='dedupe', stores=('default',))
    """
    try:
        content = json.loads(text.partition("\n")[2])
        info = content["operatorInfo"]
        stores = tuple(str(store["storeName"]) for store in content["stateStoreInfo"])
        return OperatorRecord(int(info["operatorId"]), str(info["operatorName"]), stores)
    except (KeyError, TypeError) as error:
        message = f"it lacks {error}"
        raise ValueError(message) from error
