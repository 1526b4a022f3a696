"""An application that knows nothing of balancing; with SPARK_REMOTE, a client of Spark Connect.

counts.py FOLDER ROWS KEYS WORK counts numbers, ROWS a batch, by KEYS keys, until FOLDER has a file
`stop`. WORK is an expression that takes time for each key. It then writes the first four columns of
what it counted to FOLDER/result. So do `Counts.java` and `Counts.scala`.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.functions import expr


def main(folder: Path, rows: str, keys: str, work: str) -> None:
    spark = SparkSession.builder.getOrCreate()
    numbers = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", rows).load()
    # Not in SQL, which has Connect of Spark 3.5 run a stream as if it were a batch.
    counts = numbers.groupBy(expr(f"value % {keys}")).agg(
        expr("count(*)"), expr("max(value)"), expr("sum(value)")
    )
    running = (
        counts.selectExpr("*", f"{work} AS work")
        .writeStream.queryName("counts")
        .format("memory")
        .outputMode("complete")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .start()
    )
    while not (folder / "stop").exists():
        if running.awaitTermination(1):
            sys.exit("the query ended")
    running.stop()
    lines = [" ".join(str(row[i]) for i in range(4)) for row in spark.table("counts").collect()]
    (folder / "result").write_text("\n".join(lines))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
