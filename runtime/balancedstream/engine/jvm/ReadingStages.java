package io.balancedstream;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.execution.SparkPlan;

/**
 * What the last batch of each query did before its first shuffle, to be done again for a few rows: on
 * an executor that joins, the first task of that stage takes seconds more than the next.
 *
 * <p>Only sources that may be read again after a batch has ended: of others it is unknown whether a
 * second reader takes rows from the first. A batch that runs is left alone, as it counts its rows.
 */
public final class ReadingStages {
  private static final Set SOURCES = new HashSet(Arrays.asList(new Object[] {
      "KafkaMicroBatchStream", "RateStreamMicroBatchStream", "RatePerMicroBatchStream"}));

  private static final Set OTHER_LEAVES = new HashSet(Arrays.asList(new Object[] {
      "FileSourceScanExec", "BatchScanExec", "LocalTableScanExec", "RangeExec"}));

  /** Run id -> plans of the stages of a batch that has ended; its shuffles are not held. */
  private final Map ended = new HashMap();

  /** A batch of a query has ended. */
  public synchronized void endBatch(Object execution, String runId, long batch) {
    try {
      Object last = execution == null ? null : RunningQueries.call(execution, "lastExecution");
      if (last == null) return;
      // The next one may be planned by now; then the one before stays.
      if (((Long) RunningQueries.call(last, "currentBatchId")).longValue() == batch) {
        List plans = new ArrayList();
        collect((SparkPlan) RunningQueries.call(last, "executedPlan"), plans);
        ended.put(runId, plans);
      }
    } catch (Exception e) {
      ended.remove(runId);
    }
  }

  public synchronized void endRun(String runId) {
    ended.remove(runId);
  }

  /** The rows before each first shuffle, of all queries. */
  public synchronized List list() {
    List found = new ArrayList();
    for (Object plans : ended.values()) {
      for (Object plan : (List) plans) found.add(((SparkPlan) plan).execute());
    }
    return found;
  }

  private static void collect(SparkPlan plan, List found) {
    List children = ScalaCollections.asJava(plan.children());
    if (plan.getClass().getSimpleName().equals("ShuffleExchangeExec")) {
      SparkPlan child = (SparkPlan) children.get(0);
      if (isReading(child)) {
        found.add(child);
        return;
      }
    }
    for (Object each : children) collect((SparkPlan) each, found);
  }

  /** Whether a plan only reads what may be read again, and works on it. */
  private static boolean isReading(SparkPlan plan) {
    String name = plan.getClass().getSimpleName();
    if (name.startsWith("StateStore") || name.equals("ShuffleExchangeExec")) return false;
    List children = ScalaCollections.asJava(plan.children());
    for (Object each : children) {
      if (!isReading((SparkPlan) each)) return false;
    }
    if (!children.isEmpty()) return true;
    if (!name.equals("MicroBatchScanExec")) return OTHER_LEAVES.contains(name);
    try {
      return SOURCES.contains(RunningQueries.call(plan, "stream").getClass().getSimpleName());
    } catch (Exception e) {
      return false;
    }
  }
}
