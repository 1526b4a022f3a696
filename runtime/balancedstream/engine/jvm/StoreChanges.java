package io.balancedstream;

import java.lang.reflect.Field;
import java.lang.reflect.Method;
import org.apache.spark.sql.execution.streaming.state.LineageItem;
import org.apache.spark.sql.execution.streaming.state.ReadStateStore;
import org.apache.spark.sql.execution.streaming.state.RocksDB;
import org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider;
import org.apache.spark.sql.execution.streaming.state.StateStoreProvider;
import scala.Option;
import scala.Some;
import scala.Tuple2;

/**
 * Brings a loaded store to a later version by reading what changed since.
 *
 * <p>Spark itself would fetch all files of the last snapshot again and replay every change since that
 * snapshot: RocksDB.load reuses no file of the snapshot that it loads. This does the second half of
 * what RocksDB.load does, from the loaded version on. Where it cannot, it leaves the store as it is,
 * or as one that must be loaded anew; Spark then does so.
 */
final class StoreChanges {
  private static final long NOT_LOADED = -1L;

  private final RocksDB store;
  private final ReadStateStore held;
  private final long from;

  /** Brings a store to a later version, where it can; returns whether the store is there now. */
  static boolean replay(
      StateStoreProvider provider, long version, Option checkpointId, boolean columnFamilies)
      throws Exception {
    StoreChanges changes = new StoreChanges(provider);
    try {
      return changes.replay(version, checkpointId, columnFamilies);
    } finally {
      changes.release();
    }
  }

  /** Holds the store, which nobody else knows of yet, so that whoever wants it waits. */
  StoreChanges(StateStoreProvider provider) {
    store = ((RocksDBStateStoreProvider) provider).rocksDB();
    from = store.loadedVersion();
    held = provider.getReadStore(from, store.loadedStateStoreCkptId());
  }

  void release() {
    held.release();
  }

  /**
   * Replays the changes up to a version, whose identity must follow from that of the loaded one.
   * Returns whether the store is at that version now.
   */
  boolean replay(long version, Option checkpointId, boolean columnFamilies) throws Exception {
    if (from < 1) return false; // no version 0 is ever written
    if (version <= from) return checkpointId.equals(store.loadedStateStoreCkptId());
    LineageItem[] lineage = store.getFullLineage(from, version, checkpointId);
    String loadedId = (String) store.loadedStateStoreCkptId().get();
    if (lineage[0].version() != from || !lineage[0].checkpointUniqueId().equals(loadedId)) return false;
    Tuple2[] changes = new Tuple2[lineage.length - 1];
    for (int i = 1; i < lineage.length; i++) {
      Some id = new Some(lineage[i].checkpointUniqueId());
      if (lineage[i].version() != from + i) return false;
      // Spark makes one when a column family comes or goes, which no change says.
      if (columnFamilies && store.fileManager().existsSnapshotFile(from + i, id)) return false;
      changes[i - 1] = new Tuple2(Long.valueOf(from + i), id);
    }
    boolean isDone = false;
    try {
      Method replay = RocksDB.class.getDeclaredMethod(
          "replayChangelog", new Class[] {Tuple2[].class});
      replay.setAccessible(true);
      replay.invoke(store, new Object[] {changes});
      copy("numKeysOnWritingVersion", "numKeysOnLoadedVersion");
      copy("numInternalKeysOnWritingVersion", "numInternalKeysOnLoadedVersion");
      for (int i = 1; i < lineage.length; i++) store.lineageManager().appendLineageItem(lineage[i]);
      store.fileManager().setMaxSeenVersion(version);
      store.loadedStateStoreCkptId_$eq(checkpointId);
      store.loadedVersion_$eq(version);
      isDone = true;
    } finally {
      if (!isDone) store.loadedVersion_$eq(NOT_LOADED);
    }
    return true;
  }

  private void copy(String from, String to) throws Exception {
    Field source = RocksDB.class.getDeclaredField(from);
    Field target = RocksDB.class.getDeclaredField(to);
    source.setAccessible(true);
    target.setAccessible(true);
    target.setLong(store, source.getLong(store));
  }
}
