"""How much of what is written was written before: a stateful streaming job whose keys are words.

The job follows the function words of English (the, of, to, ...), which are in every text whatever
it is about. For every use of one it looks whether an earlier use was much like it: at least `ALIKE`
of the twenty words around it are the same. Texts that were copied (licences, boilerplate, a page
that two packages have) show. A use is compared with the latest `KEPT_USES` of the same word, and
all of that is computed, so "the" costs a good deal: its rows are the most, and have the most to be
compared with.

Words are grouped by `balancedstream.balanced`; the processor is an ordinary one. One JSON file a
micro-batch is written to OUTPUT/words, and a batch that is run again overwrites its own file; the
newest line of a word is the one that counts. `check.py` compares them with a recomputation.

Run it with `python app.py INPUT OUTPUT`, `spark-submit app.py INPUT OUTPUT` or
`balancedstream run app.py INPUT OUTPUT`. `collect.py` fills INPUT.
"""

import argparse
import os
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.streaming.stateful_processor import TimerValues

from balancedstream import balanced

WORD_SCHEMA = "position BIGINT, word STRING, around STRING"
STATE_SCHEMA = "uses BIGINT, repeated BIGINT, latest ARRAY<STRING>"
RESULT_SCHEMA = "word STRING, uses BIGINT, repeated BIGINT"

ENGLISH = """
a about above after again all also although always an and any are as at be because been before below
between both but by can could did do does down during each either even every few for from had has
have he her here hers him his how i if in into is it its just like made make many may me might more
most much must my neither no nor not now of off on once only or other our out over own same shall
she should since so some such than that the their them then there these they this those through to
too under until up us very was we were what when where whether which while who whom whose why will
with within without would you your
"""
FUNCTION_WORDS = sorted(ENGLISH.split())

KEPT_USES = 4_000
"""The latest uses of a word that a new one is compared with."""

ALIKE = 15
"""A use is repeated if it shares so many of the words around it with an earlier one."""


class Company(StatefulProcessor):
    """Counts the uses of a word, and those that had been there before, or nearly."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.seen = handle.getValueState("seen", STATE_SCHEMA)

    def handleInputRows(  # noqa: N802
        self,
        key: tuple[str],
        rows: Iterator[Row],
        timerValues: TimerValues,  # noqa: N803
    ) -> Iterator[Row]:
        uses, repeated, latest = self.seen.get() or (0, 0, ())
        kept = deque(latest, KEPT_USES)
        others = deque((frozenset(around.split()) for around in latest), KEPT_USES)
        # In the order of the texts: what came before what must not depend on the shuffle.
        for row in sorted(rows, key=lambda row: row.position):
            around = frozenset(row.around.split())
            closest = max(map(len, map(around.__and__, others)), default=0)
            uses += 1
            repeated += closest >= ALIKE
            kept.append(row.around)
            others.append(around)
        self.seen.update((uses, repeated, list(kept)))
        yield Row(word=key[0], uses=uses, repeated=repeated)


def write_batches(folder: Path) -> Callable[[DataFrame, int], None]:
    """A sink that is exact across restarts: batch N is always, and only, the file of batch N."""
    folder.mkdir(parents=True, exist_ok=True)

    def write(batch: DataFrame, batch_id: int) -> None:
        lines = [line for (line,) in batch.select(F.to_json(F.struct("*"))).collect()]
        unfinished = folder / f".batch-{batch_id:06}.unfinished"
        unfinished.write_text("".join(line + "\n" for line in lines))
        os.replace(unfinished, folder / f"batch-{batch_id:06}.jsonl")

    return write


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("input", type=Path, help="folder of words, one micro-batch a file")
    parser.add_argument("output", type=Path, help="folder for results and the checkpoint")
    args = parser.parse_args()

    spark = (
        SparkSession.builder.appName("words")
        # transformWithState keeps its state in RocksDB and refuses Spark's default store.
        .config(
            "spark.sql.streaming.stateStore.providerClass",
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
        )
        # All rows of a word in one call, to be sorted: Spark may cut where an Arrow batch is full.
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", "1000000")
        .getOrCreate()
    )
    words = (
        spark.readStream.schema(WORD_SCHEMA)
        .option("maxFilesPerTrigger", 1)
        .json(str(args.input.resolve()))
        .where(F.col("word").isin(FUNCTION_WORDS))
    )
    query = (
        balanced(words, "word")
        .transformWithState(Company(), RESULT_SCHEMA, "update", "none")
        .writeStream.queryName("words")
        .outputMode("update")
        .option("checkpointLocation", str(args.output.resolve() / "checkpoint"))
        .foreachBatch(write_batches(args.output / "words"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
