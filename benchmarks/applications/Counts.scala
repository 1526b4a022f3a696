// As `counts.py`, typed into spark-shell; FOLDER, ROWS, KEYS and WORK are the lines of a variable.
import java.nio.file.{Files, Path}
val Array(folder, rows, keys, work) = sys.env("COUNTS").split("\n")
val files = Path.of(folder)
val numbers = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", rows).load()
val counts = numbers.groupBy(expr(s"value % $keys")).agg(expr("count(*)"), expr("max(value)"), expr("sum(value)"))
val output = counts.selectExpr("*", s"$work AS work").writeStream.queryName("counts").format("memory").outputMode("complete")
val running = output.option("checkpointLocation", files.resolve("checkpoint").toString).start()
while (!Files.exists(files.resolve("stop")) && !running.awaitTermination(1000)) {}
running.stop()
val lines = spark.table("counts").collect().map(row => (0 until 4).map(row(_)).mkString(" "))
Files.writeString(files.resolve("result"), lines.mkString("\n"))
