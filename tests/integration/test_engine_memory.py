"""What the engine sees of memory on real Spark: of RocksDB, and of the executors' processes."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import pytest
from patience import PATIENCE_S
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from spark_versions import SPARK
from stateful_queries import aggregate

from balancedstream.engine.engine import SparkEngine
from balancedstream.engine.events import BatchFinished

pytestmark = pytest.mark.integration

Stream = Callable[[int], DataFrame]
Start = Callable[[DataFrame, str, str], StreamingQuery]
Batches = Callable[[str], BatchFinished]

MIB = 1 << 20


def test_the_stores_of_each_executor_sum_to_what_spark_says_of_the_operator(
    spark: SparkSession, stream: Stream, start: Start, batches: Batches
) -> None:
    query = start(aggregate(stream), "stores", "update")
    batch = [batches("stores") for _ in range(3)][-1]
    query.stop()
    # Spark 3.5 gives Python dictionaries, and later ones objects.
    told = [json.loads(each.json()) for each in query._jsq.recentProgress()]
    ((operator,),) = [p["stateOperators"] for p in told if p["batchId"] == batch.sample.batch]
    metrics = operator["customMetrics"]
    ran_on = {task.executor for task in batch.tasks}
    assert {store.executor for store in batch.stores} == ran_on
    assert {store.operator for store in batch.stores} == {batch.operators[0].id}
    assert sum(s.memory_bytes for s in batch.stores) == operator["memoryUsedBytes"] > 0
    assert sum(s.gets for s in batch.stores) == metrics["rocksdbGetCount"] > 0
    assert sum(s.hits for s in batch.stores) == metrics["rocksdbReadBlockCacheHitCount"]
    assert sum(s.misses for s in batch.stores) == metrics["rocksdbReadBlockCacheMissCount"]
    latency_ms = sum(s.get_s for s in batch.stores) * 1000
    assert latency_ms == pytest.approx(metrics["rocksdbGetLatency"])


def test_each_operator_has_its_own_stores(stream: Stream, start: Start, batches: Batches) -> None:
    first = start(aggregate(stream), "one", "update")
    second = start(aggregate(stream), "two", "update")
    for query in ("one", "two"):
        batch = batches(query)
        assert {store.query for store in batch.stores} == {query}
        assert all(store.memory_bytes > 0 for store in batch.stores)
    first.stop()
    second.stop()


def test_state_in_the_heap_is_none_of_rocksdb(
    spark: SparkSession, stream: Stream, start: Start, batches: Batches
) -> None:
    provider = "spark.sql.streaming.stateStore.providerClass"
    package = "org.apache.spark.sql.execution.streaming.state."
    spark.conf.set(provider, f"{package}HDFSBackedStateStoreProvider")
    try:
        query = start(aggregate(stream), "heap", "update")
        batch = batches("heap")
        query.stop()
    finally:
        # What is set in a session holds before the choice that is made for each query.
        spark.conf.unset(provider)
    assert batch.tasks
    assert batch.stores == ()


@pytest.mark.skipif(SPARK < (4, 0), reason="it needs pgrep for the processes")
def test_the_heartbeats_of_executors_tell_of_their_processes(
    engine: SparkEngine, stream: Stream, start: Start, batches: Batches
) -> None:
    query = start(aggregate(stream), "processes", "update")
    deadline_s = time.monotonic() + PATIENCE_S
    known = batches("processes").processes
    # A heartbeat tells nothing of them if one of an executor's processes ends meanwhile.
    while {p.executor for p in known if p.resident_bytes} != set(engine.executors()):
        assert time.monotonic() < deadline_s
        known = batches("processes").processes
    query.stop()
    for process in known:
        assert process.heap_bytes > MIB
        assert process.off_heap_bytes > MIB
        # The JVM maps what it keeps, so all of it is more than what its objects take.
        assert process.resident_bytes > process.off_heap_bytes
