package io.balancedstream;

import java.time.Instant;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import org.apache.spark.ExecutorAllocationClient;
import org.apache.spark.scheduler.ExecutorDecommissionInfo;
import org.apache.spark.scheduler.SchedulerBackend;
import org.apache.spark.scheduler.SparkListener;
import org.apache.spark.scheduler.SparkListenerApplicationEnd;
import org.apache.spark.scheduler.SparkListenerEvent;
import org.apache.spark.scheduler.SparkListenerExecutorAdded;
import org.apache.spark.scheduler.SparkListenerExecutorMetricsUpdate;
import org.apache.spark.scheduler.SparkListenerExecutorRemoved;
import org.apache.spark.scheduler.SparkListenerJobEnd;
import org.apache.spark.scheduler.SparkListenerJobStart;
import org.apache.spark.scheduler.SparkListenerStageCompleted;
import org.apache.spark.scheduler.SparkListenerStageSubmitted;
import org.apache.spark.scheduler.SparkListenerTaskEnd;
import org.apache.spark.scheduler.SparkListenerTaskStart;
import org.apache.spark.scheduler.StageInfo;
import org.apache.spark.scheduler.TaskInfo;
import org.apache.spark.sql.execution.streaming.state.StateStoreCoordinatorRef;
import org.apache.spark.sql.execution.ui.SparkListenerSQLExecutionEnd;
import org.apache.spark.sql.execution.ui.SparkListenerSQLExecutionStart;
import org.apache.spark.sql.streaming.StreamingQueryListener;
import scala.Option;
import scala.Tuple2;

/**
 * Collects what the tasks of each micro-batch cost, those of state partitions one by one, and keeps
 * partitions where they were placed. At start-up the driver compiles it with Janino, the compiler that Spark ships
 * for its generated code: a listener in Python would cost a round trip per event.
 *
 * <p>Events arrive in order on one thread of the listener bus, in a queue of its own: it waits for no
 * other listener, and none for it. The progress event of a batch comes after all of its tasks end and
 * before the next batch is planned: only at that moment can a placement be asserted without a running
 * task overwriting it.
 *
 * <p>Janino knows neither lambdas nor type inference; hence the casts.
 */
public final class BatchListener extends SparkListener {
  private static final class TaskRow {
    StatefulOperators.Operator operator;
    int stage;
    int stagePartitions;
    int index;
    String executor;
    long busyMs;
    long records;
    long stateBytes;
    long restoreMs;
    long finishedMs;
    long[] rocksDb; // null with another store
  }

  /** What is reported of each task that ran state partitions, one JSON list a column. */
  private static final String[] TASK_COLUMNS = {
      "operator", "stage", "task", "partition", "executor", "busy_ms", "records", "state_bytes",
      "restore_ms", "finished_ms"};

  /** With several queries, there may be no moment at which none of them runs a batch. */
  private static final int MAX_EDGES_TO_WAIT = 5;

  /** 64 MB: 34 batches of three operators with 10,000 partitions each, and 8,000 with 32. */
  private static final long MAX_WAITING_CHARS = 64L << 20;

  private static final class Planned {
    long batch;
    long atMs;
  }

  private final SchedulerBackend backend;
  private final RunningQueries queries;
  private final HeldSlots slots;
  private final Map kinds = new HashMap();           // run id -> how it is triggered
  private final Sources sources;
  private final Admission admission;
  private final WaitingRows waiting;
  private final StatefulOperators operators = new StatefulOperators();
  private final ExecutorMemory memory = new ExecutorMemory();
  private final EventQueue events = new EventQueue(MAX_WAITING_CHARS);
  private final Map runs = new HashMap();            // query id -> run id
  private final Map planned = new HashMap();         // run id -> Planned, of its newest batch
  private final BatchStages stages = new BatchStages();
  private final Map tasks = new HashMap();           // run id -> Map(batch -> List of TaskRow)
  private final Placements placements;
  private final Preparing preparing;                 // null if nothing can be prepared
  private final WaitingTasks waitingTasks;
  private final ReadingStages reading;
  private final Map hosts;                           // live executor id -> host
  private Set missing = new HashSet();               // executor ids that Spark did not list last time

  private final Map leaving = new TreeMap();         // executor id -> batch edges waited for

  public BatchListener(
      StateStoreCoordinatorRef coordinator, SchedulerBackend backend, Map activeStreamingQueries,
      Map hosts, HeldSlots slots, Preparing preparing, WaitingTasks waitingTasks,
      ReadingStages reading) {
    this.queries = new RunningQueries(activeStreamingQueries);
    this.slots = slots;
    this.sources = new Sources(queries);
    this.admission = new Admission(queries);
    this.waiting = new WaitingRows(queries, sources, events);
    this.placements = new Placements(coordinator, hosts, preparing);
    this.backend = backend;
    this.hosts = hosts;
    this.preparing = preparing;
    this.waitingTasks = waitingTasks;
    this.reading = reading;
  }

  /** Tells of batches that are planned, and of what waits between two of them, from now on or no more. */
  public void watchSources(boolean wanted) {
    waiting.watch(wanted);
  }

  /** The next event as JSON; null if none came in time. */
  public String next(long timeoutMs) throws InterruptedException {
    return events.next(timeoutMs);
  }

  /** Forgets every placement, bound, and what waits to be read: nobody reads any more. */
  public synchronized void close() {
    admission.close();
    waiting.close();
    placements.clear();
    if (preparing != null) preparing.close();
    waitingTasks.close();
    reading.forget();
    events.close();
  }

  /**
   * Asks for the partitions of an operator to run on these executors ("" for any), from a batch
   * on. `executors` and `stores` are comma-separated: a string of any size is one round trip.
   */
  public synchronized void place(
      String runId, long operator, String stateRoot, String stores, String executors, long fromBatch,
      long nextBatch) {
    // The query may have ended while its last batch was being thought about.
    if (!tasks.containsKey(runId)) return;
    placements.place(
        runId, operator, stateRoot, stores.split(",", -1), executors.split(",", -1), fromBatch);
    if (!stages.isRunning(runId)) placements.assertWishes(runId, nextBatch);
  }

  /** What a query's sources can be bounded by; see `Admission`. */
  public String describeSources(String runId) throws Exception {
    return admission.describe(runId);
  }

  /** Bounds what the next batches of a query read; see `Admission`. */
  public boolean bound(String runId, String limits, double rows) throws Exception {
    return admission.bound(runId, limits, rows);
  }

  /** The user's own limits hold again; see `Admission`. */
  public void giveLimitsBack(String runId) throws Exception {
    admission.giveBack(runId);
  }

  /** The queries that hold slots now; see `HeldSlots.toJson`. */
  public String listHolders() {
    return slots.toJson();
  }

  /** Whether a batch of a query runs. */
  public synchronized boolean isRunning(String runId) {
    return stages.isRunning(runId);
  }

  /**
   * Has partitions of operators that share their tasks loaded on these executors ("" for none)
   * before they run there; `place` waits for it. A partition with a partner ("" for none) waits for
   * that one, too. All lists are comma-separated.
   */
  public synchronized void prepare(
      String runId, String operators, String executors, String partners, long fromBatch) {
    if (!tasks.containsKey(runId)) return;
    String[] ids = operators.split(",");
    long[] numbers = new long[ids.length];
    for (int i = 0; i < ids.length; i++) numbers[i] = Long.parseLong(ids[i]);
    String[] others = partners.split(",", -1);
    int[] partnerOf = new int[others.length];
    for (int p = 0; p < others.length; p++) {
      partnerOf[p] = others[p].isEmpty() ? Preparing.NONE : Integer.parseInt(others[p]);
    }
    preparing.prepare(runId, numbers, executors.split(",", -1), partnerOf, fromBatch);
  }

  /**
   * Retires an executor when no batch runs: until it ends, a batch reads the shuffle output that
   * the executor wrote, and could no longer find it.
   */
  public synchronized void retire(String executor) {
    leaving.put(executor, Integer.valueOf(0));
    if (stages.isEmpty()) decommission(leaving.keySet());
  }

  /** Between two batches of one query: retires executors that no other query's batch needs. */
  private void retireAtEdge() {
    List due = new ArrayList();
    Iterator it = leaving.entrySet().iterator();
    while (it.hasNext()) {
      Map.Entry entry = (Map.Entry) it.next();
      int waited = ((Integer) entry.getValue()).intValue() + 1;
      entry.setValue(Integer.valueOf(waited));
      if (stages.isEmpty() || waited >= MAX_EDGES_TO_WAIT) due.add(entry.getKey());
    }
    decommission(due);
  }

  private void decommission(Collection executors) {
    List ids = new ArrayList();
    int spared = 0;
    for (Object each : new ArrayList(executors)) {
      // A query in Real-Time Mode needs its slots at the start of each batch; the rest go later.
      if (!slots.canSpare((String) each, spared)) continue;
      ids.add(each);
      spared += slots.countCores((String) each);
    }
    if (ids.isEmpty()) return;
    leaving.keySet().removeAll(ids);
    Tuple2[] due = new Tuple2[ids.size()];
    for (int i = 0; i < due.length; i++) {
      due[i] = new Tuple2(ids.get(i), new ExecutorDecommissionInfo(
          "retired by balancedstream: its state partitions run elsewhere", Option.empty()));
    }
    // Whoever retires them has lowered the number of executors that is asked for.
    ((ExecutorAllocationClient) backend).decommissionExecutors(due, false, false);
  }

  /** An executor that joined before this listener did. */
  public synchronized void addExecutor(String id, String host, int cores) {
    slots.addExecutor(id, cores);
    if (!hosts.containsKey(id)) {
      hosts.put(id, host);
      events.addChange("{\"event\":\"executor_added\",\"executor\":" + quote(id) + ",\"cores\":" + cores + "}");
    }
  }

  /** An executor that was warmed up, or not in time. */
  public synchronized void tellWarm(String id) {
    if (!hosts.containsKey(id)) return;
    events.addChange("{\"event\":\"executor_warm\",\"executor\":" + quote(id) + "}");
  }

  public void onExecutorAdded(SparkListenerExecutorAdded e) {
    addExecutor(e.executorId(), e.executorInfo().executorHost(), e.executorInfo().totalCores());
  }

  public synchronized void onExecutorRemoved(SparkListenerExecutorRemoved e) {
    removeExecutor(e.executorId(), e.reason());
  }

  public synchronized void onExecutorMetricsUpdate(SparkListenerExecutorMetricsUpdate e) {
    // The driver has no tasks; and an executor's last heartbeat may come after its end.
    if (hosts.containsKey(e.execId())) memory.note(e);
  }

  private void removeExecutor(String id, String reason) {
    slots.removeExecutor(id);
    memory.remove(id);
    if (hosts.remove(id) == null) return;
    if (preparing != null) preparing.removeExecutor(id);
    events.addChange("{\"event\":\"executor_removed\",\"executor\":" + quote(id)
        + ",\"reason\":" + quote(reason) + "}");
  }

  /**
   * Spark drops events when its listeners lag. An executor that it does not list at two batch edges
   * in a row is gone: its event does not come any more. Returns whether an event named each that it
   * lists.
   */
  private boolean reconcileExecutors() {
    Set listed = new HashSet(
        ScalaCollections.asJava(((ExecutorAllocationClient) backend).getExecutorIds()));
    Set gone = new HashSet(hosts.keySet());
    gone.removeAll(listed);
    Iterator it = gone.iterator();
    while (it.hasNext()) {
      String id = (String) it.next();
      if (missing.contains(id)) removeExecutor(id, "Spark does not list it any more");
    }
    missing = gone;
    return hosts.keySet().containsAll(listed);
  }

  public void onApplicationEnd(SparkListenerApplicationEnd e) {
    events.addChange("{\"event\":\"application_ended\"}");
  }

  public synchronized void onJobStart(SparkListenerJobStart e) {
    try {
      slots.startJob(e);
    } catch (Throwable error) {
      // The need stays unknown, and the batch is measured all the same.
    }
    if (e.properties() == null) return;
    String batch = e.properties().getProperty("streaming.sql.batchId");
    String runId = (String) runs.get(e.properties().getProperty("sql.streaming.queryId"));
    // For a query that started before this listener, only the job group says; users may set it too.
    if (runId == null) runId = e.properties().getProperty("spark.jobGroup.id");
    boolean isKnown = batch != null && runId != null;
    if (!isKnown && !stages.hasBegun()) return;
    Iterator it = ScalaCollections.asJava(e.stageInfos()).iterator();
    while (it.hasNext()) {
      stages.add(
          isKnown ? runId : null, isKnown ? Long.parseLong(batch) : -1L, e.jobId(),
          (StageInfo) it.next());
    }
    if (isKnown) {
      String queryId = e.properties().getProperty("sql.streaming.queryId");
      reading.beginJob(
          queryId == null ? null : queries.find(queryId), runId, Long.parseLong(batch));
      tellPlanned(
          runId, queryId, Long.parseLong(batch), e.time());
    }
  }

  /** With its first job, a batch has planned what it reads. */
  private void tellPlanned(String runId, String queryId, long batch, long atMs) {
    Planned last = (Planned) planned.get(runId);
    if (!waiting.watches() || queryId == null || last != null && last.batch >= batch) return;
    Object execution = queries.find(queryId);
    if (execution == null || !runId.equals(RunningQueries.runOf(execution))) return;
    if (RunningQueries.holdsSlots(execution)) return; // it reads rows as they come
    String told;
    try {
      told = sources.planned(execution, batch);
      // A source may run a job to plan; and a short batch may have ended.
      if (told == null) return;
      told = ",\"cause\":null,\"sources\":" + told;
      for (Object folder : admission.listFolders(runId)) waiting.listAgain(folder);
    } catch (Throwable e) {
      told = ",\"cause\":" + quote(RunningQueries.describe(e)) + ",\"sources\":[]";
    }
    Planned next = new Planned();
    next.batch = batch;
    next.atMs = atMs;
    planned.put(runId, next);
    waiting.put(runId);
    events.addMeasurement("{\"event\":\"batch_planned\",\"run\":" + quote(runId)
        + ",\"batch\":" + batch + ",\"at_ms\":" + atMs + ",\"trigger_ms\":"
        + queries.triggerMs(queryId) + told + "}");
  }

  public synchronized void onJobEnd(SparkListenerJobEnd e) {
    stages.endJob(e.jobId());
  }

  public synchronized void onStageSubmitted(SparkListenerStageSubmitted e) {
    stages.submit(e.stageInfo());
    slots.submitStage(e);
    waitingTasks.submitStage(e);
  }

  public void onStageCompleted(SparkListenerStageCompleted e) {
    slots.completeStage(e.stageInfo().stageId());
    waitingTasks.completeStage(e.stageInfo().stageId());
  }

  public void onTaskStart(SparkListenerTaskStart e) {
    slots.startTask(e.stageId(), e.taskInfo().executorId());
  }

  public synchronized void onTaskEnd(SparkListenerTaskEnd e) {
    slots.endTask(e.stageId(), e.taskInfo().executorId());
    BatchStages.Stage stage = stages.find(e.stageId());
    if (stage == null) return;
    TaskInfo info = e.taskInfo();
    if (stage.runId == null) {
      StatefulOperators.Batch of = operators.findBatch(info);
      if (of != null) stages.claim(stage, of.runId, of.number);
    }
    if (!info.successful()) {
      if (stage.runId == null) return;
      events.addMeasurement("{\"event\":\"task_failed\",\"run\":" + quote(stage.runId)
          + ",\"executor\":" + quote(info.executorId()) + "}");
      return;
    }
    if (e.taskMetrics() == null) return;
    long busyMs = BatchStages.addTask(stage, info, e.taskMetrics());
    if (stage.runId == null) return;
    List states = operators.readTask(info);
    if (states.isEmpty()) return;
    stage.stateful = true;
    Map batches = child(tasks, stage.runId);
    List rows = (List) batches.get(Long.valueOf(stage.batch));
    if (rows == null) {
      rows = new ArrayList();
      batches.put(Long.valueOf(stage.batch), rows);
    }
    Iterator each = states.iterator();
    while (each.hasNext()) {
      StatefulOperators.TaskState state = (StatefulOperators.TaskState) each.next();
      // Behind `coalesce`, no partition has a task, a time or a place of its own.
      if (stage.mergedInto < state.operator.partitions) {
        state.operator.isMerged = true;
        continue;
      }
      TaskRow row = new TaskRow();
      row.operator = state.operator;
      row.stage = e.stageId();
      row.stagePartitions = stage.partitions;
      row.index = info.partitionId();
      row.executor = info.executorId();
      row.busyMs = busyMs;
      row.records = state.records;
      row.stateBytes = Math.max(state.memoryBytes, state.sstBytes);
      row.restoreMs = state.restoreMs;
      row.finishedMs = info.finishTime();
      row.rocksDb = state.operator.inRocksDb ? state.rocksDb : null;
      rows.add(row);
      // In a union, only the whole batch tells which partition it is.
      if (canPrepare(stage.runId) && row.stagePartitions == row.operator.partitions) {
        preparing.endTask(stage.runId, stage.batch, row.operator.id, row.index);
      }
    }
  }

  public synchronized void onOtherEvent(SparkListenerEvent e) {
    if (e instanceof SparkListenerSQLExecutionStart) {
      SparkListenerSQLExecutionStart start = (SparkListenerSQLExecutionStart) e;
      StatefulOperators.Batch of = operators.addExecution(
          start.executionId(), start.description(), start.sparkPlanInfo());
      if (of != null) stages.begin(of.runId, of.number);
    } else if (e instanceof SparkListenerSQLExecutionEnd) {
      operators.removeExecution(((SparkListenerSQLExecutionEnd) e).executionId());
    } else if (e instanceof StreamingQueryListener.QueryStartedEvent) {
      StreamingQueryListener.QueryStartedEvent started =
          (StreamingQueryListener.QueryStartedEvent) e;
      runs.put(started.id().toString(), started.runId().toString());
      String kind = findKind(started.runId().toString(), started.id().toString());
      if (preparing != null && queries.hasRealTime()) preparing.makeRoom();
      events.addChange("{\"event\":\"query_started\",\"run\":\"" + started.runId() + "\",\"id\":\""
          + started.id() + "\",\"name\":" + quote(started.name()) + ",\"trigger\":\"" + kind + "\"}");
    } else if (e instanceof StreamingQueryListener.QueryIdleEvent) {
      events.addMeasurement("{\"event\":\"query_idle\",\"run\":\""
          + ((StreamingQueryListener.QueryIdleEvent) e).runId() + "\"}");
    } else if (e instanceof StreamingQueryListener.QueryProgressEvent) {
      onProgress(((StreamingQueryListener.QueryProgressEvent) e).progress());
    } else if (e instanceof StreamingQueryListener.QueryTerminatedEvent) {
      StreamingQueryListener.QueryTerminatedEvent ended =
          (StreamingQueryListener.QueryTerminatedEvent) e;
      String runId = ended.runId().toString();
      runs.values().remove(runId);
      kinds.remove(runId);
      slots.endQuery(ended.id().toString());
      operators.removeRun(runId);
      tasks.remove(runId);
      planned.remove(runId);
      admission.endRun(runId);
      waiting.end(runId);
      reading.endRun(runId);
      placements.endRun(runId);
      if (preparing != null) preparing.endRun(runId);
      stages.forget(runId, Long.MAX_VALUE);
      retireAtEdge();
      events.addChange("{\"event\":\"query_terminated\",\"run\":" + quote(runId) + ",\"error\":"
          + (ended.exception().isEmpty() ? "null" : quote((String) ended.exception().get())) + "}");
    }
  }

  private void onProgress(org.apache.spark.sql.streaming.StreamingQueryProgress progress) {
    String runId = progress.runId().toString();
    long batch = progress.batchId();
    Map batches = child(tasks, runId);
    List rows = (List) batches.get(Long.valueOf(batch));
    if (rows == null) rows = new ArrayList();
    String taskColumns = resolve(runId, batch, rows);
    StoreSums stores = new StoreSums();
    for (Object each : rows) {
      TaskRow row = (TaskRow) each;
      if (row.rocksDb != null) stores.add(row.operator.id + "," + quote(row.executor), row.rocksDb);
    }
    String storeRows = stores.toJson();
    String stageRows = stages.toJson(runId, batch);
    boolean knowsAll = reconcileExecutors();
    if (canPrepare(runId)) preparing.endBatch(runId);
    placements.assertWishes(runId, batch + 1);
    Iterator old = batches.keySet().iterator();
    while (old.hasNext()) {
      if (((Long) old.next()).longValue() <= batch) old.remove();
    }
    stages.forget(runId, batch);
    retireAtEdge();
    String boundRows = endBound(runId, batch, progress.timestamp());
    String queryId = progress.id().toString();
    reading.endBatch(runId, batch);
    String kind = findKind(runId, queryId);
    if (kind.equals("micro-batch")) waiting.put(runId);
    events.addMeasurement("{\"event\":\"batch_finished\",\"run\":" + quote(runId) + ",\"progress\":"
        + BatchProgress.toJson(progress, sources.files(queryId)) + ",\"trigger_ms\":"
        + queries.triggerMs(queryId) + ",\"trigger\":\"" + kind
        + "\",\"bound_rows\":" + boundRows + ",\"operators\":["
        + operators.toJson(runId) + "],\"tasks\":{" + taskColumns + "},\"stores\":[" + storeRows
        + "],\"memory\":[" + memory.toJson() + "],\"stages\":[" + stageRows
        + "],\"knows_all_executors\":" + knowsAll
        + ",\"preparations\":[" + (preparing == null ? "" : preparing.toJson(runId)) + "]}");
  }

  /** How a run is triggered; its last batch may be told when it runs no more. */
  private String findKind(String runId, String queryId) {
    String known = (String) kinds.get(runId);
    Object execution = known == null ? queries.find(queryId) : null;
    if (execution != null && runId.equals(RunningQueries.runOf(execution))) {
      known = RunningQueries.kindOf(execution);
      kinds.put(runId, known);
    }
    return known == null ? "micro-batch" : known;
  }

  /** Whether partitions of a run can move: those of a query in Real-Time Mode stay. */
  private boolean canPrepare(String runId) {
    return preparing != null && !"real-time".equals(kinds.get(runId));
  }

  /** A batch has ended: the rows to which it was bounded, as JSON. */
  private String endBound(String runId, long batch, String began) {
    Planned known = (Planned) planned.get(runId);
    String rows = "null";
    try {
      long beganMs = Instant.parse(began).toEpochMilli();
      boolean isKnown = known != null && known.batch == batch;
      rows = admission.rowsOf(runId, beganMs, isKnown ? known.atMs : beganMs);
      admission.endBatch(runId, beganMs);
    } catch (Exception e) {
      // The query may end just now. The measurement of the batch does not depend on it.
    }
    return rows;
  }

  /** The columns of the batch's rows as JSON; remembers where each partition ran. */
  private String resolve(String runId, long batch, List rows) {
    Map first = new HashMap(); // stage/operator -> its first task index, if a union shifts it
    for (int i = 0; i < rows.size(); i++) {
      TaskRow row = (TaskRow) rows.get(i);
      if (row.stagePartitions == row.operator.partitions) continue;
      String key = row.stage + "/" + row.operator.id;
      Integer least = (Integer) first.get(key);
      if (least == null || row.index < least.intValue()) first.put(key, Integer.valueOf(row.index));
    }
    StringBuilder[] columns = new StringBuilder[TASK_COLUMNS.length];
    for (int c = 0; c < columns.length; c++) {
      columns[c] = new StringBuilder(c == 0 ? "" : ",").append('"').append(TASK_COLUMNS[c]).append("\":[");
    }
    for (int i = 0; i < rows.size(); i++) {
      TaskRow row = (TaskRow) rows.get(i);
      Integer shift = (Integer) first.get(row.stage + "/" + row.operator.id);
      int partition = row.index - (shift == null ? 0 : shift.intValue());
      placements.note(runId, row.operator.id, partition, row.executor);
      if (canPrepare(runId) && row.stagePartitions != row.operator.partitions) {
        preparing.endTask(runId, batch, row.operator.id, partition);
      }
      Object[] values = {
          Long.valueOf(row.operator.id), Integer.valueOf(row.stage), Integer.valueOf(row.index),
          Integer.valueOf(partition), quote(row.executor), Long.valueOf(row.busyMs),
          Long.valueOf(row.records), Long.valueOf(row.stateBytes), Long.valueOf(row.restoreMs),
          Long.valueOf(row.finishedMs)};
      for (int c = 0; c < columns.length; c++) {
        if (i > 0) columns[c].append(',');
        columns[c].append(values[c]);
      }
    }
    StringBuilder json = new StringBuilder();
    for (int c = 0; c < columns.length; c++) json.append(columns[c]).append(']');
    return json.toString();
  }

  private static Map child(Map parent, String key) {
    Map map = (Map) parent.get(key);
    if (map == null) {
      map = new HashMap();
      parent.put(key, map);
    }
    return map;
  }

  private static String quote(String text) {
    return StatefulOperators.quote(text);
  }
}
