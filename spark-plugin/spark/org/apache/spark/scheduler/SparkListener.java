package org.apache.spark.scheduler;

public abstract class SparkListener implements SparkListenerInterface {
  public void onOtherEvent(SparkListenerEvent event) {}
}
