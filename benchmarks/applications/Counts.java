import static org.apache.spark.sql.functions.expr;

import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.streaming.StreamingQuery;

/** As `counts.py`. It does not stop Spark: many applications just return. */
public final class Counts {
  public static void main(String[] args) throws Exception {
    Path folder = Paths.get(args[0]);
    SparkSession spark = SparkSession.builder().getOrCreate();
    Dataset<Row> counts = spark.readStream()
        .format("rate-micro-batch").option("rowsPerBatch", args[1]).load()
        .groupBy(expr("value % " + args[2]))
        .agg(expr("count(*)"), expr("max(value)"), expr("sum(value)"));
    StreamingQuery running = counts.selectExpr("*", args[3] + " AS work").writeStream()
        .queryName("counts")
        .format("memory")
        .outputMode("complete")
        .option("checkpointLocation", folder.resolve("checkpoint").toString())
        .start();
    while (!Files.exists(folder.resolve("stop"))) {
      if (running.awaitTermination(1000)) throw new IllegalStateException("the query ended");
    }
    running.stop();
    List<String> lines = new ArrayList<>();
    for (Row row : spark.table("counts").collectAsList()) {
      lines.add(row.get(0) + " " + row.get(1) + " " + row.get(2) + " " + row.get(3));
    }
    Files.write(folder.resolve("result"), lines);
  }
}
