import org.apache.spark.sql.{DataFrame, SparkSession}
import org.apache.spark.sql.functions.{col, window}
import org.apache.spark.sql.streaming.Trigger

object Visits {
  def save(rows: DataFrame, batch: Long): Unit =
    rows.write.mode("overwrite").json(s"output/batch=$batch")

  def main(arguments: Array[String]): Unit = {
    val spark = SparkSession.builder.appName("visits").getOrCreate()
    val visits = spark.readStream
      .schema("user_id string, at timestamp")
      .option("maxFilesPerTrigger", 100)
      .json("input/visits")
    val hourly = visits
      .withWatermark("at", "10 minutes")
      .groupBy(col("user_id"), window(col("at"), "1 hour"))
      .count()
    val query = hourly.writeStream
      .queryName("hourly")
      .outputMode("update")
      .option("checkpointLocation", "checkpoints/hourly")
      .foreachBatch(save _)
      .trigger(Trigger.ProcessingTime("1 second"))
      .start()
    query.awaitTermination()
  }
}
