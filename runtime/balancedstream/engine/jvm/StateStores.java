package io.balancedstream;

import java.lang.reflect.Field;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.Dependency;
import org.apache.spark.NarrowDependency;
import org.apache.spark.broadcast.Broadcast;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.streaming.operators.stateful.StateStoreWriter;
import org.apache.spark.sql.execution.streaming.operators.stateful.StatefulOpStateStoreCheckpointInfo;
import org.apache.spark.sql.execution.streaming.operators.stateful.StatefulOperatorStateInfo;
import org.apache.spark.sql.execution.streaming.operators.stateful.join.StreamingSymmetricHashJoinExec;
import org.apache.spark.sql.execution.streaming.operators.stateful.join.StreamingSymmetricHashJoinHelper$LeftSide$;
import org.apache.spark.sql.execution.streaming.operators.stateful.join.StreamingSymmetricHashJoinHelper$RightSide$;
import org.apache.spark.sql.execution.streaming.operators.stateful.join.SymmetricHashJoinStateManager$;
import org.apache.spark.sql.execution.streaming.runtime.IncrementalExecution;
import org.apache.spark.sql.execution.streaming.runtime.StreamExecution;
import org.apache.spark.sql.execution.streaming.state.KeyStateEncoderSpec;
import org.apache.spark.sql.execution.streaming.state.NoPrefixKeyStateEncoderSpec;
import org.apache.spark.sql.execution.streaming.state.StateStoreConf;
import org.apache.spark.sql.types.StructType;
import scala.Option;
import scala.Tuple2;

/**
 * What another executor needs to open the state stores of a running query, taken from the query's
 * own plan and RDDs: nothing is guessed.
 */
public final class StateStores {
  private final Map executions; // query id -> StreamExecution, of all sessions

  public StateStores(Map activeStreamingQueries) {
    this.executions = activeStreamingQueries;
  }

  /**
   * Operator id to `StateStoreWriter` of the batch's plan; null if the query is at another batch.
   * Once a task of the batch has ended, all that is asked here of the plan exists already.
   */
  public Map findOperators(String runId, long batch) {
    for (Object each : executions.values()) {
      StreamExecution execution = (StreamExecution) each;
      if (!execution.runId().toString().equals(runId)) continue;
      IncrementalExecution last = execution.lastExecution();
      if (last == null || last.currentBatchId() != batch) return null;
      Map found = new HashMap();
      collect(last.executedPlan(), found);
      return found;
    }
    return null;
  }

  private static void collect(SparkPlan plan, Map found) {
    if (plan instanceof StateStoreWriter) {
      Option info = ((StateStoreWriter) plan).stateInfo();
      if (info.isDefined()) {
        found.put(Long.valueOf(((StatefulOperatorStateInfo) info.get()).operatorId()), plan);
      }
    }
    for (Object each : ScalaCollections.asJava(plan.children())) collect((SparkPlan) each, found);
  }

  /** The version of the state that the batch of an operator reads. */
  public static long readVersion(Object operator) {
    return info(operator).storeVersion();
  }

  /** The checkpoint ids of a partition's stores at that version; null if there are none. */
  public static String[] readCheckpointIds(Object operator, int partition) {
    Option ids = info(operator).getStateStoreCkptId(partition);
    return ids.isEmpty() ? null : (String[]) ids.get();
  }

  /**
   * The same at the version that the batch writes; null until the partition's task has ended. A
   * batch may run a task twice: the first one counts, as for Spark.
   */
  public static String[] writtenCheckpointIds(Object operator, int partition) {
    for (Object each : ((StateStoreWriter) operator).checkpointInfoAccumulator().value()) {
      StatefulOpStateStoreCheckpointInfo written = (StatefulOpStateStoreCheckpointInfo) each;
      if (written.partitionId() != partition) continue;
      return written.stateStoreCkptId().isEmpty() ? null : (String[]) written.stateStoreCkptId().get();
    }
    return null;
  }

  /**
   * The stores of an operator, in the order of their checkpoint ids.
   *
   * @throws UnsupportedOperationException with the reason why they cannot be opened ahead
   * @throws IllegalStateException if this batch opens them in another way
   */
  public static PreloadTask.Store[] describe(Object operator) throws Exception {
    PreloadTask.Store[] stores = operator instanceof StreamingSymmetricHashJoinExec
        ? describeJoin((StreamingSymmetricHashJoinExec) operator)
        : describeSingle((SparkPlan) operator);
    StateStoreConf conf = stores[0].conf;
    if (!conf.providerClass().endsWith(".RocksDBStateStoreProvider")) {
      throw new UnsupportedOperationException("its state is not in RocksDB");
    }
    if (!conf.enableStateStoreCheckpointIds()) {
      throw new UnsupportedOperationException("its checkpoint has format 1");
    }
    return stores;
  }

  private static PreloadTask.Store[] describeSingle(SparkPlan plan) throws Exception {
    long operator = info(plan).operatorId();
    RDD rdd = findStateStoreRdd(plan.execute(), operator);
    if (rdd == null) {
      throw new IllegalStateException("its stores are opened in another way");
    }
    PreloadTask.Store store = begin(plan);
    store.name = "default";
    store.keySchema = (StructType) read(rdd, "keySchema");
    store.valueSchema = (StructType) read(rdd, "valueSchema");
    store.keyEncoder = (KeyStateEncoderSpec) read(rdd, "keyStateEncoderSpec");
    store.schemas = (Option) read(rdd, "stateSchemaBroadcast");
    store.columnFamilies = ((Boolean) read(rdd, "useColumnFamilies")).booleanValue();
    store.multipleValues = ((Boolean) read(rdd, "useMultipleValuesPerKey")).booleanValue();
    store.conf = (StateStoreConf) read(rdd, "storeConf");
    store.hadoopConf = (Broadcast) read(rdd, "hadoopConfBroadcast");
    return new PreloadTask.Store[] {store};
  }

  /** Up to the shuffle before the operator. */
  private static RDD findStateStoreRdd(RDD rdd, long operator) throws Exception {
    if (rdd.getClass().getSimpleName().equals("StateStoreRDD")
        && ((Long) read(rdd, "operatorId")).longValue() == operator) {
      return rdd;
    }
    for (Object each : ScalaCollections.asJava(rdd.dependencies())) {
      Dependency dependency = (Dependency) each;
      if (!(dependency instanceof NarrowDependency)) continue;
      RDD found = findStateStoreRdd(dependency.rdd(), operator);
      if (found != null) return found;
    }
    return null;
  }

  private static PreloadTask.Store[] describeJoin(StreamingSymmetricHashJoinExec join)
      throws Exception {
    if (((Boolean) read(join, "useVirtualColumnFamilies")).booleanValue()) {
      throw new UnsupportedOperationException("the join keeps both sides in one store");
    }
    Map schemas = new HashMap(); // store name -> Tuple2 of key and value schema
    SymmetricHashJoinStateManager$ manager = SymmetricHashJoinStateManager$.MODULE$;
    int version = join.stateFormatVersion();
    schemas.putAll(ScalaCollections.asJava(manager.getSchemaForStateStores(
        StreamingSymmetricHashJoinHelper$LeftSide$.MODULE$, join.left().output(), join.leftKeys(),
        version)));
    schemas.putAll(ScalaCollections.asJava(manager.getSchemaForStateStores(
        StreamingSymmetricHashJoinHelper$RightSide$.MODULE$, join.right().output(),
        join.rightKeys(), version)));
    List stores = new ArrayList();
    for (Object name : ScalaCollections.asJava(join.stateStoreNames())) {
      PreloadTask.Store store = begin(join);
      store.name = (String) name;
      Tuple2 schema = (Tuple2) schemas.get(store.name);
      store.keySchema = (StructType) schema._1();
      store.valueSchema = (StructType) schema._2();
      store.keyEncoder = new NoPrefixKeyStateEncoderSpec(store.keySchema);
      store.schemas = Option.empty();
      store.conf = (StateStoreConf) read(join, "storeConf");
      store.hadoopConf = (Broadcast) read(join, "hadoopConfBcast");
      stores.add(store);
    }
    return (PreloadTask.Store[]) stores.toArray(new PreloadTask.Store[0]);
  }

  private static PreloadTask.Store begin(Object operator) {
    StatefulOperatorStateInfo info = info(operator);
    PreloadTask.Store store = new PreloadTask.Store();
    store.runId = info.queryRunId().toString();
    store.stateRoot = info.checkpointLocation();
    store.operator = info.operatorId();
    return store;
  }

  private static StatefulOperatorStateInfo info(Object operator) {
    return (StatefulOperatorStateInfo) ((StateStoreWriter) operator).stateInfo().get();
  }

  /** The field with this name, which Scala may have made longer by its class. */
  private static Object read(Object target, String name) throws Exception {
    Class owner = target.getClass();
    while (owner != null) {
      Field[] fields = owner.getDeclaredFields();
      for (int i = 0; i < fields.length; i++) {
        String found = fields[i].getName();
        if (!found.equals(name) && !found.endsWith("$$" + name)) continue;
        fields[i].setAccessible(true);
        return fields[i].get(target);
      }
      owner = owner.getSuperclass();
    }
    throw new NoSuchFieldException(name);
  }
}
