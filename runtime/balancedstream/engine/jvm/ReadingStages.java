package io.balancedstream;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.execution.SparkPlan;

/**
 * What the last batch of each query did before its first shuffle, to be done again for a few rows: on
 * an executor that joins, the first task of that stage takes seconds more than the next.
 *
 * <p>Only what may be done again after a batch has ended: sources of which it is known that a second
 * reader takes no rows from the first, and steps of Spark's own, without state and without functions
 * of the user's. A batch that runs is left alone, as it counts its rows.
 */
public final class ReadingStages {
  private static final Set SOURCES = new HashSet(Arrays.asList(new Object[] {
      "KafkaMicroBatchStream", "RateStreamMicroBatchStream", "RatePerMicroBatchStream"}));

  private static final Set STEPS = new HashSet(Arrays.asList(new Object[] {
      "ColumnarToRowExec", "EventTimeWatermarkExec", "ExpandExec", "FilterExec", "GenerateExec",
      "HashAggregateExec", "InputAdapter", "ObjectHashAggregateExec", "ProjectExec", "SortExec",
      "SortAggregateExec", "UnionExec", "WholeStageCodegenExec"}));

  private static final String[] OF_USERS = {"UDF", "UDAF", "Aggregator", "TypedAggregate",
      "ApplyFunction"};

  /** Later, a source may no longer have these rows. */
  private static final long KEPT_MS = 600_000L;

  private static final class Batch {
    long number;
    long endedMs;
    List plans = new ArrayList(); // its shuffles are not held
  }

  private final Map running = new HashMap(); // run id -> Batch
  private final Map ended = new HashMap();   // run id -> Batch, the last one that read
  private boolean isWanted;

  /** Whether executors that join are warmed up. */
  public synchronized void setWanted(boolean wanted) {
    isWanted = wanted;
    if (!wanted) forget();
  }

  public synchronized void forget() {
    running.clear();
    ended.clear();
  }

  /** A job of a batch begins. */
  public synchronized void beginJob(Object execution, String runId, long number) {
    Batch known = (Batch) running.get(runId);
    if (!isWanted || execution == null || known != null && known.number == number) return;
    Batch batch = new Batch();
    batch.number = number;
    running.put(runId, batch);
    try {
      Object last = RunningQueries.call(execution, "lastExecution");
      if (((Long) RunningQueries.call(last, "currentBatchId")).longValue() != number) return;
      collect((SparkPlan) RunningQueries.call(last, "executedPlan"), batch.plans);
    } catch (Throwable error) { // another Spark has it elsewhere
      batch.plans.clear();
    }
  }

  public synchronized void endBatch(String runId, long number) {
    Batch batch = (Batch) running.get(runId);
    if (batch == null || batch.number != number || batch.plans.isEmpty()) return;
    batch.endedMs = System.currentTimeMillis();
    ended.put(runId, batch);
  }

  public synchronized void endRun(String runId) {
    running.remove(runId);
    ended.remove(runId);
  }

  /** The plan before each first shuffle, of all queries. */
  public synchronized List list() {
    List found = new ArrayList();
    long since = System.currentTimeMillis() - KEPT_MS;
    for (Object each : ended.values()) {
      if (((Batch) each).endedMs >= since) found.addAll(((Batch) each).plans);
    }
    return found;
  }

  private static void collect(SparkPlan plan, List found) throws Exception {
    List children = ScalaCollections.asJava(plan.children());
    if (plan.getClass().getSimpleName().equals("ShuffleExchangeExec")) {
      SparkPlan child = (SparkPlan) children.get(0);
      if (reads(child) > 0) {
        found.add(child);
        return;
      }
    }
    for (Object each : children) collect((SparkPlan) each, found);
  }

  /** How many sources a plan reads; below 0 if it may not be done again. */
  private static int reads(SparkPlan plan) throws Exception {
    String name = plan.getClass().getSimpleName();
    for (Object each : ScalaCollections.asJava(plan.expressions())) {
      if (isOfUser((Expression) each)) return -1;
    }
    if (name.equals("MicroBatchScanExec")) {
      String source = RunningQueries.call(plan, "stream").getClass().getSimpleName();
      return SOURCES.contains(source) ? 1 : -1;
    }
    if (name.equals("FileSourceScanExec")) return 1;
    if (name.equals("LocalTableScanExec")) return 0; // a source that has nothing new
    if (!STEPS.contains(name)) return -1;
    int sum = 0;
    for (Object each : ScalaCollections.asJava(plan.children())) {
      int read = reads((SparkPlan) each);
      if (read < 0) return -1;
      sum += read;
    }
    return sum;
  }

  private static boolean isOfUser(Expression expression) {
    String name = expression.getClass().getSimpleName();
    for (int i = 0; i < OF_USERS.length; i++) {
      if (name.contains(OF_USERS[i])) return true;
    }
    for (Object each : ScalaCollections.asJava(expression.children())) {
      if (isOfUser((Expression) each)) return true;
    }
    return false;
  }
}
