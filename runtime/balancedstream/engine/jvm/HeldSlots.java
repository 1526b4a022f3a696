package io.balancedstream;

import java.util.HashMap;
import java.util.Iterator;
import java.util.Map;
import java.util.Properties;
import org.apache.spark.resource.ResourceProfile;
import org.apache.spark.scheduler.SchedulerBackend;
import org.apache.spark.scheduler.SparkListenerJobStart;
import org.apache.spark.scheduler.SparkListenerStageSubmitted;
import org.apache.spark.scheduler.StageInfo;

/**
 * The slots of queries whose tasks all run at once, and what they leave to others.
 *
 * <p>A query in Real-Time Mode runs all tasks of a batch at once, for as long as the batch lasts, and
 * Spark ends it if they do not find enough slots when a batch begins: it counts what runs, and what
 * waits, of every other job (`DAGScheduler.rejectUnadmittablePipelinedGroup`). So a job of ours may
 * run only in slots that neither these queries nor the batches of others need. Where one of these
 * numbers is unknown, no slot is free.
 */
public final class HeldSlots {
  /** Each group of our own jobs begins so. */
  private static final String OURS = "balancedstream";

  private static final class Need {
    String batch; // null under continuous processing
    int slots;
    Map held = new HashMap(); // executor id -> Integer, when all of its tasks ran last
  }

  private static final class Stage {
    String holder; // id of the query that holds the slots; null for other work
    String query;  // id; "" for work of no query
    int tasks;     // of other work, while the stage runs
    boolean isOver; // tasks of a stage that was cancelled may end later
    Map running = new HashMap(); // of a holder: executor id -> Integer
  }

  private final SchedulerBackend backend;
  private final ResourceProfile profile;
  private final RunningQueries queries;
  private final Map needs = new HashMap();       // query id -> Need
  private final Map stages = new HashMap();      // stage id -> Stage
  private final Map outstanding = new HashMap(); // query id -> Integer, tasks of its stages that run
  private final Map peaks = new HashMap();       // query id -> Integer, the most of them
  private final Map cores = new HashMap();       // executor id -> Integer
  private int reserved; // by jobs of our own, which run or are about to

  public HeldSlots(SchedulerBackend backend, ResourceProfile profile, Map activeStreamingQueries) {
    this.backend = backend;
    this.profile = profile;
    this.queries = new RunningQueries(activeStreamingQueries);
  }

  public synchronized void addExecutor(String id, int count) {
    cores.put(id, Integer.valueOf(count));
  }

  public synchronized void removeExecutor(String id) {
    cores.remove(id);
    for (Object each : stages.values()) ((Stage) each).running.remove(id);
  }

  /** Before one of its stages, a job says how many tasks it has in all. */
  public synchronized void startJob(SparkListenerJobStart e) {
    String query = e.properties() == null ? null : e.properties().getProperty("sql.streaming.queryId");
    Object execution = query == null ? null : queries.find(query);
    if (execution == null || !RunningQueries.holdsSlots(execution)) return;
    int tasks = 0;
    Iterator it = ScalaCollections.asJava(e.stageInfos()).iterator();
    while (it.hasNext()) {
      StageInfo info = (StageInfo) it.next();
      tasks += info.numTasks();
      Stage stage = new Stage();
      stage.holder = query;
      stages.put(Integer.valueOf(info.stageId()), stage);
    }
    String batch = e.properties().getProperty("streaming.sql.batchId");
    Need need = (Need) needs.get(query);
    boolean isSame = need != null && (batch == null || batch.equals(need.batch));
    if (isSame) {
      need.slots = Math.max(need.slots, tasks);
      return;
    }
    Need next = new Need();
    next.batch = batch;
    next.slots = tasks;
    if (need != null) next.held = need.held;
    needs.put(query, next);
  }

  /** From here on Spark counts the tasks of a stage, whether they run or wait. */
  public synchronized void submitStage(SparkListenerStageSubmitted e) {
    Integer id = Integer.valueOf(e.stageInfo().stageId());
    Stage known = (Stage) stages.get(id);
    if (known != null && known.holder != null) return;
    Properties properties = e.properties();
    String group = properties == null ? null : properties.getProperty("spark.jobGroup.id");
    if (group != null && group.startsWith(OURS)) return; // it has reserved its slot
    if (known != null) add(known.query, -known.tasks);
    String query = properties == null ? null : properties.getProperty("sql.streaming.queryId");
    Stage stage = new Stage();
    stage.query = query == null ? "" : query;
    stage.tasks = e.stageInfo().numTasks();
    stages.put(id, stage);
    add(stage.query, stage.tasks);
  }

  public synchronized void completeStage(int id) {
    Stage stage = (Stage) stages.get(Integer.valueOf(id));
    if (stage == null) return;
    if (stage.holder == null) {
      stages.remove(Integer.valueOf(id));
      add(stage.query, -stage.tasks);
    } else if (stage.running.isEmpty()) {
      stages.remove(Integer.valueOf(id));
    } else {
      stage.isOver = true;
    }
  }

  public synchronized void startTask(int stage, String executor) {
    count(stage, executor, 1);
  }

  public synchronized void endTask(int stage, String executor) {
    count(stage, executor, -1);
  }

  private void count(int id, String executor, int change) {
    Stage stage = (Stage) stages.get(Integer.valueOf(id));
    if (stage == null || stage.holder == null) return;
    int now = toInt((Integer) stage.running.get(executor)) + change;
    if (now > 0) stage.running.put(executor, Integer.valueOf(now));
    else stage.running.remove(executor);
    Need need = (Need) needs.get(stage.holder);
    if (change > 0 && need != null) {
      Map running = listRunning(stage.holder);
      int total = 0;
      for (Object each : running.values()) total += toInt((Integer) each);
      // Between two batches no task runs, and the next ones run much as those before.
      if (total >= need.slots) need.held = running;
    }
    if (stage.isOver && stage.running.isEmpty()) stages.remove(Integer.valueOf(id));
  }

  private void add(String query, int tasks) {
    int now = Math.max(0, toInt((Integer) outstanding.get(query)) + tasks);
    outstanding.put(query, Integer.valueOf(now));
    peaks.put(query, Integer.valueOf(Math.max(now, toInt((Integer) peaks.get(query)))));
  }

  public synchronized void endQuery(String query) {
    needs.remove(query);
    outstanding.remove(query);
    peaks.remove(query);
    Iterator it = stages.values().iterator();
    while (it.hasNext()) {
      Stage stage = (Stage) it.next();
      if (query.equals(stage.holder) || query.equals(stage.query)) it.remove();
    }
  }

  /** Whether a query in Real-Time Mode runs. */
  public boolean isRealTime() {
    return queries.hasRealTime();
  }

  /**
   * Slots that no query needs, whatever batch begins next; none below 0, and 0 if that is unknown.
   * Without a query in Real-Time Mode all of them are free: then tasks wait for each other.
   */
  public synchronized int countFree() {
    if (!queries.hasRealTime()) return Integer.MAX_VALUE;
    int taken = toInt((Integer) outstanding.get(""));
    for (Object execution : queries.list()) {
      String query = RunningQueries.idOf(execution);
      if (RunningQueries.holdsSlots(execution)) {
        Need need = (Need) needs.get(query);
        if (need == null) return 0;
        taken += need.slots;
      } else {
        Integer peak = (Integer) peaks.get(query);
        if (peak == null) return 0;
        taken += peak.intValue();
      }
    }
    return Math.max(0, backend.maxNumConcurrentTasks(profile) - taken);
  }

  /** Takes a slot for a job of ours; false if none is free. */
  public synchronized boolean reserve() {
    if (countFree() <= reserved) return false;
    reserved++;
    return true;
  }

  /** A job of ours is over. */
  public synchronized void release() {
    reserved--;
  }

  /** Whether an executor can go: nobody holds a slot of it, and what stays is enough. */
  public synchronized boolean canSpare(String executor, int alreadySpared) {
    for (Object each : stages.values()) {
      if (((Stage) each).running.containsKey(executor)) return false;
    }
    // Jobs of the user's own may come again at any time, as wide as they were.
    int more = toInt((Integer) peaks.get("")) - toInt((Integer) outstanding.get(""));
    int wanted = more + alreadySpared + countCores(executor);
    return !queries.hasRealTime() || countFree() - reserved >= wanted;
  }

  public synchronized int countCores(String executor) {
    return toInt((Integer) cores.get(executor));
  }

  /**
   * `[id, name, trigger, slots, {executor: slots held}]` of each query that holds slots, as a JSON
   * list; `slots` is null as long as no batch of it began that was seen.
   */
  public synchronized String toJson() {
    StringBuilder json = new StringBuilder("[");
    for (Object execution : queries.list()) {
      if (!RunningQueries.holdsSlots(execution)) continue;
      if (json.length() > 1) json.append(',');
      String query = RunningQueries.idOf(execution);
      Need need = (Need) needs.get(query);
      json.append("[\"").append(query).append("\",")
          .append(StatefulOperators.quote(RunningQueries.nameOf(execution))).append(",\"")
          .append(RunningQueries.kindOf(execution)).append("\",")
          .append(need == null ? "null" : String.valueOf(need.slots)).append(",{")
          .append(StatefulOperators.joinEntries(need == null ? new HashMap() : need.held))
          .append("}]");
    }
    return json.append(']').toString();
  }

  /** How many slots a query holds of each executor now. */
  private Map listRunning(String query) {
    Map running = new HashMap();
    for (Object each : stages.values()) {
      Stage stage = (Stage) each;
      if (!query.equals(stage.holder)) continue;
      for (Object one : stage.running.entrySet()) {
        Map.Entry entry = (Map.Entry) one;
        int before = toInt((Integer) running.get(entry.getKey()));
        int now = before + toInt((Integer) entry.getValue());
        running.put(entry.getKey(), Integer.valueOf(now));
      }
    }
    return running;
  }

  private static int toInt(Integer count) {
    return count == null ? 0 : count.intValue();
  }
}
