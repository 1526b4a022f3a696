package io.balancedstream;

import java.util.HashMap;
import java.util.Iterator;
import java.util.Map;
import org.apache.spark.executor.TaskMetrics;
import org.apache.spark.scheduler.StageInfo;
import org.apache.spark.scheduler.TaskInfo;
import org.apache.spark.storage.RDDInfo;

/**
 * The stages of the batches that run, and what their tasks cost by executor. A job that a user's own
 * thread began does not say whose it is: the first of its tasks does that can. Not thread-safe:
 * `BatchListener` locks.
 */
public final class BatchStages {
  public static final class Stage {
    public String runId; // null as long as nobody knows
    public long batch;
    int job;
    public int tasks;
    public int partitions; // of its last RDD; a job may run only some of them
    public int mergedInto = Integer.MAX_VALUE; // the fewest partitions that a `coalesce` leaves
    boolean readsShuffle;
    public boolean stateful;
    long longestMs;
    long firstMs = Long.MAX_VALUE; // from submission or the launch of the first task
    long lastMs;                   // to the end of the last one
    Map busyMs = new HashMap();    // executor id -> Long, all tasks
  }

  private final Map stages = new HashMap(); // stage id -> Stage
  private final Map begun = new HashMap();  // run id -> Long, its batch that runs

  /** A batch runs, maybe without a job yet. */
  public void begin(String runId, long batch) {
    begun.put(runId, Long.valueOf(batch));
  }

  /** Whether a job may be of a batch although it does not say so. */
  public boolean hasBegun() {
    return !begun.isEmpty();
  }

  /**
   * Notes a stage of a batch, or of a job that does not say which (`runId` is null); one whose output
   * several jobs of the batch read is in each of them.
   */
  public void add(String runId, long batch, int job, StageInfo info) {
    Stage known = find(info.stageId());
    if (known != null && (runId == null || runId.equals(known.runId))) return;
    Stage stage = new Stage();
    stage.runId = runId;
    stage.batch = batch;
    stage.job = job;
    stage.tasks = info.numTasks();
    stage.readsShuffle = !info.parentIds().isEmpty();
    stage.partitions = ((RDDInfo) info.rddInfos().head()).numPartitions();
    for (Object each : ScalaCollections.asJava(info.rddInfos())) {
      RDDInfo rdd = (RDDInfo) each;
      if (rdd.name().equals("CoalescedRDD")) {
        stage.mergedInto = Math.min(stage.mergedInto, rdd.numPartitions());
      }
    }
    stages.put(Integer.valueOf(info.stageId()), stage);
  }

  /** From here on the tasks of a stage wait for a core: that is no time of the driver's. */
  public void submit(StageInfo info) {
    Stage stage = find(info.stageId());
    if (stage == null || info.submissionTime().isEmpty()) return;
    stage.firstMs = Math.min(stage.firstMs, ((Long) info.submissionTime().get()).longValue());
  }

  /** The job of a stage is one of this batch. */
  public void claim(Stage stage, String runId, long batch) {
    for (Object each : stages.values()) {
      Stage other = (Stage) each;
      if (other.runId != null || other.job != stage.job) continue;
      other.runId = runId;
      other.batch = batch;
    }
  }

  /** A job ended; it is of no batch if none of its tasks has said so. */
  public void endJob(int job) {
    Iterator it = stages.values().iterator();
    while (it.hasNext()) {
      Stage stage = (Stage) it.next();
      if (stage.runId == null && stage.job == job) it.remove();
    }
  }

  /** The stage with this id; null if it belongs to no batch that runs. */
  public Stage find(int stageId) {
    return (Stage) stages.get(Integer.valueOf(stageId));
  }

  /** Adds a task that ended well; returns its run time in milliseconds. */
  public static long addTask(Stage stage, TaskInfo task, TaskMetrics metrics) {
    long busyMs = metrics.executorRunTime() + metrics.executorDeserializeTime();
    Long before = (Long) stage.busyMs.get(task.executorId());
    stage.busyMs.put(
        task.executorId(), Long.valueOf(busyMs + (before == null ? 0L : before.longValue())));
    stage.longestMs = Math.max(stage.longestMs, busyMs);
    stage.firstMs = Math.min(stage.firstMs, task.launchTime());
    stage.lastMs = Math.max(stage.lastMs, task.finishTime());
    return busyMs;
  }

  /** Whether a batch of this query runs. */
  public boolean isRunning(String runId) {
    if (begun.containsKey(runId)) return true;
    for (Object each : stages.values()) {
      if (runId.equals(((Stage) each).runId)) return true;
    }
    return false;
  }

  /** Whether no batch runs. */
  public boolean isEmpty() {
    if (!begun.isEmpty()) return false;
    for (Object each : stages.values()) {
      if (((Stage) each).runId != null) return false;
    }
    return true;
  }

  /** Forgets the stages of a query up to a batch. */
  public void forget(String runId, long lastBatch) {
    Long running = (Long) begun.get(runId);
    if (running != null && running.longValue() <= lastBatch) begun.remove(runId);
    Iterator it = stages.values().iterator();
    while (it.hasNext()) {
      Stage stage = (Stage) it.next();
      if (runId.equals(stage.runId) && stage.batch <= lastBatch) it.remove();
    }
  }

  /** The stages of a batch that ran, as JSON; those whose output was there already did not. */
  public String toJson(String runId, long batch) {
    StringBuilder json = new StringBuilder();
    for (Object each : stages.values()) {
      Stage stage = (Stage) each;
      if (!runId.equals(stage.runId) || stage.batch != batch || stage.busyMs.isEmpty()) continue;
      if (json.length() > 0) json.append(',');
      String kind = stage.stateful ? "stateful" : stage.readsShuffle ? "sink" : "source";
      json.append("[\"").append(kind).append("\",").append(stage.tasks).append(',')
          .append(stage.longestMs).append(',').append(stage.firstMs).append(',')
          .append(stage.lastMs).append(",{");
      json.append(StatefulOperators.joinEntries(stage.busyMs)).append("}]");
    }
    return json.toString();
  }
}
