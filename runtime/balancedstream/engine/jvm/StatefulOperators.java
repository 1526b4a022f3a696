package io.balancedstream;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.spark.scheduler.AccumulableInfo;
import org.apache.spark.scheduler.TaskInfo;
import org.apache.spark.sql.execution.SparkPlanInfo;
import org.apache.spark.sql.execution.metric.SQLMetricInfo;

/**
 * The stateful operators in the plans of running queries, what their tasks report about state, and
 * of which batch a task is. Not thread-safe: `BatchListener` locks.
 *
 * <p>It is public, with all that others use, because each class has a class loader of its own.
 */
public final class StatefulOperators {
  /** The names of a stateful operator's metrics in a plan; a missing one counts as zero. */
  private static final String STORES = "number of state store instances";
  private static final String MEMORY_BYTES = "memory used by state";
  private static final String SST_BYTES = "RocksDB: size of all SST files";
  private static final String LOAD_MS = "RocksDB: load - time taken to load the store";

  /**
   * Of each exchange, what its readers got. `TaskMetrics` has the same number, but a heartbeat sets
   * it to zero for a moment (`ShuffleReadMetrics.setMergeValues`), and a task that ends then sends zero.
   */
  private static final String RECORDS = "records read";

  /** Spark's text of `StatefulOperatorStateInfo`; a checkpoint's path may have any character. */
  private static final Pattern STATE_INFO = Pattern.compile(
      "state info \\[ checkpoint = (.*?), runId = ([0-9a-f-]{36}), opId = (\\d+),"
          + " ver = [^,]*, numPartitions = (\\d+)\\]");

  /** Ends Spark's text of a batch (`StreamExecution.getBatchDescriptionString`). */
  private static final Pattern BATCH =
      Pattern.compile("runId = ([0-9a-f-]{36})(?:<br/>|\\s)+batch = (\\d+)\\s*$");

  /** A batch of a query. */
  public static final class Batch {
    public String runId;
    public long number;
  }

  public static final class Operator {
    public String runId;
    public long id;
    public int partitions;
    public String stateRoot;
    public String name;
    public boolean isMerged; // a task runs several of its partitions
    public boolean inRocksDb;
  }

  /** What one task reported about the state of one operator. */
  public static final class TaskState {
    public Operator operator;
    public long stores;
    public long memoryBytes;
    public long sstBytes;
    public long restoreMs;
    public long records; // that the task read from shuffles, whoever of its operators they are for
    public long[] rocksDb = StoreSums.begin();
  }

  private static final class Metric {
    Operator operator; // null for any other node of a plan
    String name;
    boolean isRecords; // of an exchange
    Batch batch;       // null if Spark does not say
  }

  private final Map metrics = new HashMap();            // accumulator id -> Metric
  private final Map metricsOfExecution = new HashMap(); // SQL execution id -> List of accumulator ids
  private final Map operators = new HashMap();          // run id -> Map(operator id -> Operator)

  /** Takes in the plan of a SQL execution; returns the batch that it is of, null if of none. */
  public Batch addExecution(long execution, String description, SparkPlanInfo plan) {
    Batch batch = readBatch(description);
    List ids = new ArrayList();
    findOperators(plan, batch, ids);
    if (!ids.isEmpty()) metricsOfExecution.put(Long.valueOf(execution), ids);
    return batch;
  }

  private static Batch readBatch(String description) {
    Matcher text = BATCH.matcher(String.valueOf(description));
    if (!text.find()) return null;
    Batch batch = new Batch();
    batch.runId = text.group(1);
    batch.number = Long.parseLong(text.group(2));
    return batch;
  }

  /**
   * The batch of a task that counts for its plan, whichever thread of the user's began the job; null
   * if there is none.
   */
  public Batch findBatch(TaskInfo info) {
    if (metrics.isEmpty()) return null;
    for (Object each : ScalaCollections.asJava(info.accumulables())) {
      AccumulableInfo a = (AccumulableInfo) each;
      Metric metric = (Metric) metrics.get(Long.valueOf(a.id()));
      if (metric != null && metric.batch != null && a.update().isDefined()) return metric.batch;
    }
    return null;
  }

  /** Forgets the metrics of a SQL execution that ended. */
  public void removeExecution(long execution) {
    List ids = (List) metricsOfExecution.remove(Long.valueOf(execution));
    if (ids != null) metrics.keySet().removeAll(ids);
  }

  /** Forgets a query that ended. */
  public void removeRun(String runId) {
    operators.remove(runId);
  }

  /** The `TaskState` of each operator that has a state store in a task. */
  public List readTask(TaskInfo info) {
    Map found = new HashMap(); // Operator -> TaskState
    long records = 0L;
    for (Object each : ScalaCollections.asJava(info.accumulables())) {
      AccumulableInfo a = (AccumulableInfo) each;
      Metric metric = (Metric) metrics.get(Long.valueOf(a.id()));
      if (metric == null || a.update().isEmpty()) continue;
      Object update = a.update().get();
      if (!(update instanceof Long)) continue;
      long value = Math.max(0L, ((Long) update).longValue());
      if (metric.operator == null) {
        if (metric.isRecords) records += value;
        continue;
      }
      TaskState state = (TaskState) found.get(metric.operator);
      if (state == null) {
        state = new TaskState();
        state.operator = metric.operator;
        found.put(metric.operator, state);
      }
      if (STORES.equals(metric.name)) state.stores = value;
      else if (MEMORY_BYTES.equals(metric.name)) state.memoryBytes = value;
      else if (SST_BYTES.equals(metric.name)) state.sstBytes = value;
      else if (LOAD_MS.equals(metric.name)) state.restoreMs = value;
      if (metric.operator.inRocksDb) StoreSums.read(state.rocksDb, metric.name, value);
    }
    List states = new ArrayList();
    for (Object each : found.values()) {
      TaskState state = (TaskState) each;
      // In a union, the stage has the operator but this task does not.
      if (state.stores == 0L) continue;
      state.records = records;
      states.add(state);
    }
    return states;
  }

  /** The operators of a query as JSON objects, separated by commas. */
  public String toJson(String runId) {
    StringBuilder json = new StringBuilder();
    Map ofRun = (Map) operators.get(runId);
    if (ofRun == null) return "";
    for (Object each : ofRun.values()) {
      Operator operator = (Operator) each;
      if (json.length() > 0) json.append(',');
      json.append("{\"id\":").append(operator.id).append(",\"partitions\":")
          .append(operator.partitions).append(",\"state_root\":").append(quote(operator.stateRoot))
          .append(",\"name\":").append(quote(operator.name))
          .append(",\"merged\":").append(operator.isMerged).append('}');
    }
    return json.toString();
  }

  private void findOperators(SparkPlanInfo plan, Batch batch, List ids) {
    Operator operator = readOperator(plan);
    boolean isExchange = plan.nodeName().equals("Exchange");
    boolean writesState = false;
    for (Object each : ScalaCollections.asJava(plan.metrics())) {
      SQLMetricInfo m = (SQLMetricInfo) each;
      boolean isRecords = operator == null && isExchange && m.name().equals(RECORDS);
      if (operator == null && batch == null && !isRecords) continue;
      Metric metric = new Metric();
      metric.operator = operator;
      metric.name = m.name();
      metric.isRecords = isRecords;
      metric.batch = batch;
      if (operator != null && STORES.equals(m.name())) writesState = true;
      if (operator != null && SST_BYTES.equals(m.name())) operator.inRocksDb = true;
      Long id = Long.valueOf(m.accumulatorId());
      // A plan inside of another one has its metrics, too, ends before it, and may not say of which
      // batch it is.
      Metric before = (Metric) metrics.get(id);
      if (before == null) ids.add(id);
      else if (batch == null) metric.batch = before.batch;
      metrics.put(id, metric);
    }
    if (writesState) {
      Map ofRun = (Map) operators.get(operator.runId);
      if (ofRun == null) {
        ofRun = new HashMap();
        operators.put(operator.runId, ofRun);
      }
      ofRun.put(Long.valueOf(operator.id), operator);
    }
    for (Object each : ScalaCollections.asJava(plan.children())) {
      findOperators((SparkPlanInfo) each, batch, ids);
    }
  }

  /** The stateful operator that a node of a plan is; null if it is none. */
  private static Operator readOperator(SparkPlanInfo plan) {
    if (plan.nodeName().equals("StateStoreRestore")) return null;
    Matcher info = STATE_INFO.matcher(plan.simpleString());
    if (!info.find()) return null;
    Operator operator = new Operator();
    operator.stateRoot = info.group(1);
    operator.runId = info.group(2);
    operator.id = Long.parseLong(info.group(3));
    operator.partitions = Integer.parseInt(info.group(4));
    operator.name = plan.nodeName();
    return operator;
  }

  /** The entries of a JSON object, whose keys are strings and whose values are numbers. */
  public static String joinEntries(Map values) {
    StringBuilder json = new StringBuilder();
    for (Object each : values.entrySet()) {
      Map.Entry entry = (Map.Entry) each;
      if (json.length() > 0) json.append(',');
      json.append(quote((String) entry.getKey())).append(':').append(entry.getValue());
    }
    return json.toString();
  }

  /** A string in JSON, or null. */
  public static String quote(String text) {
    if (text == null) return "null";
    StringBuilder quoted = new StringBuilder("\"");
    for (int i = 0; i < text.length(); i++) {
      char c = text.charAt(i);
      if (c == '"' || c == '\\') quoted.append('\\').append(c);
      else if (c < ' ') quoted.append(String.format("\\u%04x", new Object[] {Integer.valueOf(c)}));
      else quoted.append(c);
    }
    return quoted.append('"').toString();
  }
}
