package org.apache.spark;

public class SparkConf {
  public native String get(String key, String otherwise);

  public native SparkConf set(String key, String value);

  public native SparkConf setIfMissing(String key, String value);

  public native SparkConf remove(String key);
}
