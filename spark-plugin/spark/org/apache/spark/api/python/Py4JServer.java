package org.apache.spark.api.python;

import org.apache.spark.SparkConf;

public class Py4JServer {
  public Py4JServer(SparkConf conf) {}

  public native void start();

  public native int getListeningPort();

  public native String secret();

  public native void shutdown();
}
