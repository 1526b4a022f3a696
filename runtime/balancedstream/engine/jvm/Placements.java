package io.balancedstream;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.Map;
import java.util.UUID;
import org.apache.spark.sql.execution.streaming.state.StateStoreCoordinatorRef;
import org.apache.spark.sql.execution.streaming.state.StateStoreId;
import org.apache.spark.sql.execution.streaming.state.StateStoreProviderId;

/**
 * Where partitions are wanted, and where they last ran. Not thread-safe: `BatchListener` locks, and
 * calls `assertWishes` only between two batches of the query: in the middle of one, a running task
 * may hold the store, and its executor would be told to close it.
 */
public final class Placements {
  private static final class Wish {
    String stateRoot;
    String[] stores;
    String[] executors;
    long fromBatch;
  }

  private final StateStoreCoordinatorRef coordinator;
  private final Map hosts;                        // live executor id -> host
  private final Preparing preparing;              // null if nothing can be prepared
  private final Map wishes = new HashMap();       // run id -> Map(operator id -> Wish)
  private final Map lastExecutor = new HashMap(); // run id -> Map(operator/partition -> executor)

  public Placements(StateStoreCoordinatorRef coordinator, Map hosts, Preparing preparing) {
    this.coordinator = coordinator;
    this.hosts = hosts;
    this.preparing = preparing;
  }

  /** Wants the partitions of an operator on these executors ("" for any), from a batch on. */
  public void place(
      String runId, long operator, String stateRoot, String[] stores, String[] executors,
      long fromBatch) {
    Wish wish = new Wish();
    wish.stateRoot = stateRoot;
    wish.stores = stores;
    wish.executors = executors;
    wish.fromBatch = fromBatch;
    child(wishes, runId).put(Long.valueOf(operator), wish);
  }

  /** A partition ran on an executor. */
  public void note(String runId, long operator, int partition, String executor) {
    child(lastExecutor, runId).put(operator + "/" + partition, executor);
  }

  /** Wants nothing any more. */
  public void clear() {
    wishes.clear();
  }

  /** Forgets a query that ended. */
  public void endRun(String runId) {
    wishes.remove(runId);
    lastExecutor.remove(runId);
    // Spark has done so before, and may have been told of more stores since.
    coordinator.deactivateInstances(UUID.fromString(runId));
  }

  /** Tells the coordinator about every partition that last ran on another executor than wanted. */
  public void assertWishes(String runId, long nextBatch) {
    Map ofRun = (Map) wishes.get(runId);
    if (ofRun == null) return;
    Map ranOn = child(lastExecutor, runId);
    if (preparing != null) giveBack(runId, ofRun, ranOn);
    for (Object each : ofRun.entrySet()) {
      Map.Entry entry = (Map.Entry) each;
      long operator = ((Long) entry.getKey()).longValue();
      Wish wish = (Wish) entry.getValue();
      if (wish.fromBatch > nextBatch) continue;
      for (int p = 0; p < wish.executors.length; p++) {
        String wanted = wish.executors[p];
        if (wanted.equals(ranOn.get(operator + "/" + p))) continue;
        if (preparing != null && preparing.holdsBack(runId, operator, p, wanted)) continue;
        report(runId, operator, wish, p, wanted);
      }
    }
  }

  /** A target that was prepared in vain has told Spark that it holds the state. */
  private void giveBack(String runId, Map ofRun, Map ranOn) {
    for (Object each : preparing.takeGivenUp(runId)) {
      String place = (String) each;
      int slash = place.indexOf('/');
      Long operator = Long.valueOf(place.substring(0, slash));
      Wish wish = (Wish) ofRun.get(operator);
      String owner = (String) ranOn.get(place);
      if (wish == null || owner == null) continue;
      report(runId, operator.longValue(), wish, Integer.parseInt(place.substring(slash + 1)), owner);
    }
  }

  private void report(String runId, long operator, Wish wish, int partition, String executor) {
    String host = (String) hosts.get(executor);
    if (host == null) return;
    // Spark waits for the answer, which the driver gives itself in less than a millisecond. It must be
    // there before the next batch is planned, and only partitions that move are told of.
    try {
      for (int s = 0; s < wish.stores.length; s++) {
        coordinator.reportActiveInstance(
            new StateStoreProviderId(
                new StateStoreId(wish.stateRoot, operator, partition, wish.stores[s]),
                UUID.fromString(runId)),
            host, executor, ScalaCollections.toSeq(new ArrayList()));
      }
    } catch (RuntimeException e) {
      // It runs where it may, and is told of again at the next edge, as what last ran elsewhere.
      // The other partitions, and the measurement of the batch, do not depend on it.
    }
  }

  private static Map child(Map parent, String key) {
    Map map = (Map) parent.get(key);
    if (map == null) {
      map = new HashMap();
      parent.put(key, map);
    }
    return map;
  }
}
