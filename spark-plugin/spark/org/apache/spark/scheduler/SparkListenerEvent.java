package org.apache.spark.scheduler;

public interface SparkListenerEvent {}
