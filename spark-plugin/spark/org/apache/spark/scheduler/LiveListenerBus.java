package org.apache.spark.scheduler;

import java.util.List;

public class LiveListenerBus {
  public native List<SparkListenerInterface> listeners();
}
