package io.balancedstream;

import java.util.Iterator;
import java.util.Map;
import java.util.TreeMap;
import org.apache.spark.executor.ExecutorMetrics;
import org.apache.spark.scheduler.SparkListenerExecutorMetricsUpdate;

/**
 * What each executor took of memory at its last heartbeat with tasks, the most since the one before.
 * Not thread-safe: `BatchListener` locks.
 */
public final class ExecutorMemory {
  /**
   * Names of `ExecutorMetricType`, in the order of the values. Those of the processes are 0 unless
   * `spark.executor.processTreeMetrics.enabled` is true, and where `/proc` or `pgrep` are missing.
   */
  private static final String[] NAMES = {
      "JVMHeapMemory", "JVMOffHeapMemory", "ProcessTreeJVMRSSMemory", "ProcessTreePythonRSSMemory",
      "ProcessTreeOtherRSSMemory"};

  private final Map executors = new TreeMap(); // id -> long[], in the order of `NAMES`

  /** Takes in a heartbeat; one without tasks has no values. */
  public void note(SparkListenerExecutorMetricsUpdate e) {
    long[] values = new long[NAMES.length];
    boolean isKnown = false;
    // By stage; each has what the whole executor took while the stage ran.
    Iterator each = ScalaCollections.asJava(e.executorUpdates()).values().iterator();
    while (each.hasNext()) {
      ExecutorMetrics metrics = (ExecutorMetrics) each.next();
      if (!metrics.isSet()) continue;
      isKnown = true;
      for (int i = 0; i < NAMES.length; i++) {
        values[i] = Math.max(values[i], metrics.getMetricValue(NAMES[i]));
      }
    }
    if (isKnown) executors.put(e.execId(), values);
  }

  /** Forgets an executor that is gone. */
  public void remove(String id) {
    executors.remove(id);
  }

  /** A list for each executor, separated by commas: its id, and the values. */
  public String toJson() {
    StringBuilder json = new StringBuilder();
    Iterator each = executors.entrySet().iterator();
    while (each.hasNext()) {
      Map.Entry entry = (Map.Entry) each.next();
      if (json.length() > 0) json.append(',');
      json.append('[').append(StatefulOperators.quote((String) entry.getKey()));
      long[] values = (long[]) entry.getValue();
      for (int i = 0; i < values.length; i++) json.append(',').append(values[i]);
      json.append(']');
    }
    return json.toString();
  }
}
