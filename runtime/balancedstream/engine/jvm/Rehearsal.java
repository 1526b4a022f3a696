package io.balancedstream;

import java.io.File;
import java.lang.reflect.Method;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.nio.file.attribute.FileAttribute;
import java.util.UUID;
import org.apache.hadoop.conf.Configuration;
import org.apache.spark.network.util.JavaUtils;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.execution.streaming.runtime.StreamExecution$;
import org.apache.spark.sql.execution.streaming.state.NoPrefixKeyStateEncoderSpec;
import org.apache.spark.sql.execution.streaming.state.StateStore;
import org.apache.spark.sql.execution.streaming.state.StateStoreConf;
import org.apache.spark.sql.execution.streaming.state.StateStoreConf$;
import org.apache.spark.sql.execution.streaming.state.StateStoreId;
import org.apache.spark.sql.execution.streaming.state.StateStoreProvider;
import org.apache.spark.sql.execution.streaming.state.StateStoreProvider$;
import org.apache.spark.sql.execution.streaming.state.StateStoreProviderId;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.util.ShutdownHookManager$;
import scala.Option;

/**
 * Loads a small state that it writes itself, on the executor's own disk. An executor's first load
 * takes about a second more than the next, for classes and code that is not compiled yet. This is
 * that first load, so none of a move is.
 */
final class Rehearsal {
  private static final int KEYS = 1000;
  private static final StructType SCHEMA = new StructType().add("n", "long");

  private final String runId = UUID.randomUUID().toString();
  private final String root;

  private Rehearsal(String root) {
    this.root = root;
  }

  static void run() throws Exception {
    File folder = Files.createTempDirectory(
        findRoot(), "balancedstream-rehearsal", new FileAttribute[0]).toFile();
    // The executor may be told to end meanwhile.
    ShutdownHookManager$.MODULE$.registerShutdownDeleteDir(folder);
    try {
      new Rehearsal(folder.toURI().toString()).writeAndLoad();
    } finally {
      JavaUtils.deleteRecursively(folder);
      ShutdownHookManager$.MODULE$.removeShutdownDeleteDir(folder);
    }
  }

  /** A folder that goes with the executor even if it is killed, as far as its cluster has one. */
  private static Path findRoot() {
    String[] names = {"SPARK_EXECUTOR_DIRS", "LOCAL_DIRS", "SPARK_LOCAL_DIRS"};
    for (int i = 0; i < names.length; i++) {
      String folders = System.getenv(names[i]);
      if (folders == null || folders.isEmpty()) continue;
      Path first = Paths.get(folders.split(i == 0 ? File.pathSeparator : ",")[0], new String[0]);
      if (Files.isWritable(first)) return first;
    }
    return Paths.get(System.getProperty("java.io.tmpdir"), new String[0]);
  }

  private void writeAndLoad() throws Exception {
    StateStoreProvider writer = open();
    try {
      StateStoreProvider reader = open();
      try {
        writeAndLoad(writer, reader);
      } finally {
        reader.close();
      }
    } finally {
      writer.close();
    }
  }

  private void writeAndLoad(StateStoreProvider writer, StateStoreProvider reader)
      throws Exception {
    Option first = write(writer, 0L, Option.empty());
    writer.doMaintenance(); // uploads the snapshot
    Option second = write(writer, 1L, first);
    reader.getReadStore(1L, first).release();
    StoreChanges.replay(reader, 2L, second, false);
  }

  private StateStoreProvider open() {
    SQLConf conf = new SQLConf();
    String prefix = "spark.sql.streaming.stateStore.";
    conf.setConfString(
        prefix + "providerClass",
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider");
    conf.setConfString(prefix + "rocksdb.changelogCheckpointing.enabled", "true");
    conf.setConfString(prefix + "checkpointFormatVersion", "2");
    conf.setConfString(prefix + "minDeltasForSnapshot", "1");
    // The driver is told nothing of this store.
    conf.setConfString(prefix + "coordinatorReportSnapshotUploadLag", "false");
    Configuration hadoopConf = new Configuration();
    hadoopConf.set(StreamExecution$.MODULE$.RUN_ID_KEY(), runId);
    StateStoreId id = new StateStoreId(root, 0L, 0, "default");
    return StateStoreProvider$.MODULE$.createAndInit(
        new StateStoreProviderId(id, UUID.fromString(runId)), SCHEMA, SCHEMA,
        new NoPrefixKeyStateEncoderSpec(SCHEMA), false,
        new StateStoreConf(conf, StateStoreConf$.MODULE$.$lessinit$greater$default$2()),
        hadoopConf, false, Option.empty());
  }

  /** Writes the next version; returns its checkpoint id. */
  private Option write(StateStoreProvider writer, long version, Option checkpointId)
      throws Exception {
    StateStore store = openForWriting(writer, version, checkpointId);
    for (int i = 0; i < KEYS; i++) store.put(makeRow(i), makeRow(version), "default");
    store.commit();
    return store.getStateStoreCheckpointInfo().stateStoreCkptId();
  }

  /** Later versions of Spark ask for more, which is false by default. */
  private static StateStore openForWriting(
      StateStoreProvider writer, long version, Option checkpointId) throws Exception {
    Method[] methods = StateStoreProvider.class.getMethods();
    for (int i = 0; i < methods.length; i++) {
      if (!methods[i].getName().equals("getStore")) continue;
      Object[] arguments = new Object[methods[i].getParameterTypes().length];
      arguments[0] = Long.valueOf(version);
      arguments[1] = checkpointId;
      for (int a = 2; a < arguments.length; a++) arguments[a] = Boolean.FALSE;
      return (StateStore) methods[i].invoke(writer, arguments);
    }
    throw new NoSuchMethodException("getStore");
  }

  private static UnsafeRow makeRow(long value) {
    UnsafeRow row = new UnsafeRow(1);
    row.pointTo(new byte[16], 16);
    row.setLong(0, value);
    return row;
  }
}
