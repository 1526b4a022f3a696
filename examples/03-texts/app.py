"""What texts are about: a stateless streaming job whose cost depends on the record.

For every text: its length, its words, and its five keywords, found by YAKE (Campos et al. 2020), an
unsupervised method that weighs all words and phrases of a text. That takes the longer the longer
the text is, and texts differ by more than a factor of a thousand.

`--shuffle by-cost` spreads the texts of a micro-batch by what they are expected to cost,
`--shuffle round-robin` as Spark does. Everything else is the same, the results too. Given both,
one query runs after the other, over the same texts.

Run it with `python app.py INPUT OUTPUT`, `spark-submit app.py INPUT OUTPUT` or
`balancedstream run app.py INPUT OUTPUT`. `collect.py` fills INPUT.
"""

import argparse
import re
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import yake
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import balancedstream

TEXT_SCHEMA = "name STRING, text STRING"
RESULT_SCHEMA = "name STRING, length BIGINT, words BIGINT, keywords STRING"
CLASSES_PER_DOUBLING = 2
WAYS = ("by-cost", "round-robin")


def describe(text: str) -> tuple[int, int, str]:
    """The figures of one text, as in `RESULT_SCHEMA`."""
    extractor = yake.KeywordExtractor(top=5)
    keywords = [keyword for keyword, _ in extractor.extract_keywords(text)]
    return len(text), len(re.findall(r"\w+", text)), "; ".join(keywords)


def describe_texts(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    """The function that the texts are shuffled for."""
    for frame in frames:
        figures = [describe(text) for text in frame["text"]]
        described = pd.DataFrame(figures, columns=["length", "words", "keywords"])
        described.insert(0, "name", frame["name"])
        yield described


def spread(texts: DataFrame, way: str, partitions: int, folder: Path) -> DataFrame:
    """The texts of a micro-batch in so many partitions; what they cost is learnt in `folder`."""
    if way == "round-robin":
        return texts.repartition(partitions)
    length = F.greatest(F.length("text"), F.lit(1))
    return balancedstream.shuffle(
        texts,
        # Texts of like length cost alike; few classes are learnt soon.
        cost_key=F.floor(CLASSES_PER_DOUBLING * F.log2(length)),
        partitions=partitions,
        folder=str(folder),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("input", type=Path, help="folder of texts, one micro-batch a file")
    parser.add_argument("output", type=Path, help="folder for a folder of each way's results")
    parser.add_argument("--shuffle", nargs="+", choices=WAYS, default=["by-cost"], metavar="WAY")
    parser.add_argument("--partitions", type=int, default=2, help="one for each executor")
    parser.add_argument(
        "--warm-up", action="store_true", help="describe a batch once before, for fair times"
    )
    args = parser.parse_args()

    spark = SparkSession.builder.appName("texts").getOrCreate()
    texts = (
        spark.readStream.schema(TEXT_SCHEMA)
        .option("maxFilesPerTrigger", 1)
        .json(str(args.input.resolve()))
    )
    if args.warm_up:
        # The first query of a session is slow, however its rows are spread.
        given = spark.read.schema(TEXT_SCHEMA).json(str(min(args.input.resolve().iterdir())))
        described = given.repartition(args.partitions).mapInPandas(describe_texts, RESULT_SCHEMA)
        described.write.format("noop").mode("overwrite").save()
    for way in args.shuffle:
        output = args.output.resolve() / way
        query = (
            spread(texts, way, args.partitions, output / "costs")
            .mapInPandas(describe_texts, RESULT_SCHEMA)
            .writeStream.queryName(way)
            .format("json")
            .option("checkpointLocation", str(output / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(output / "results"))
        )
        query.awaitTermination()
        for batch in query.recentProgress:
            if batch["numInputRows"]:
                seconds = batch["durationMs"]["triggerExecution"] / 1000
                number, count = batch["batchId"], batch["numInputRows"]
                print(f"{way}, batch {number}: {count} texts in {seconds:.2f} s")


if __name__ == "__main__":
    main()
