package org.apache.spark.api.plugin;

public interface SparkPlugin {
  DriverPlugin driverPlugin();

  ExecutorPlugin executorPlugin();
}
