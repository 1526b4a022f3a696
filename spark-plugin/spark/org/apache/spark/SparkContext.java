package org.apache.spark;

import org.apache.spark.scheduler.LiveListenerBus;
import org.apache.spark.scheduler.SparkListenerInterface;

public class SparkContext {
  public native SparkConf conf();

  public native LiveListenerBus listenerBus();

  public native boolean isStopped();

  public native void addSparkListener(SparkListenerInterface listener);

  public native void removeSparkListener(SparkListenerInterface listener);
}
