package io.balancedstream;

import java.io.Serializable;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.util.HashMap;
import java.util.Map;
import java.util.Timer;
import java.util.TimerTask;
import java.util.UUID;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.ThreadFactory;
import org.apache.hadoop.conf.Configuration;
import org.apache.spark.broadcast.Broadcast;
import org.apache.spark.sql.execution.streaming.runtime.StreamExecution$;
import org.apache.spark.sql.execution.streaming.state.KeyStateEncoderSpec;
import org.apache.spark.sql.execution.streaming.state.ReadStateStore;
import org.apache.spark.sql.execution.streaming.state.StateStore$;
import org.apache.spark.sql.execution.streaming.state.StateStoreConf;
import org.apache.spark.sql.execution.streaming.state.StateStoreId;
import org.apache.spark.sql.execution.streaming.state.StateStoreProvider;
import org.apache.spark.sql.execution.streaming.state.StateStoreProvider$;
import org.apache.spark.sql.execution.streaming.state.StateStoreProviderId;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.util.SerializableConfiguration;
import scala.Option;
import scala.collection.immutable.Nil$;
import scala.collection.immutable.Seq;
import scala.runtime.AbstractFunction2;

/**
 * Runs on the executor that is to take over partitions: starts what it is told in threads of its
 * own, one load at a time, and returns at once, with what earlier threads came to. It must not hold a
 * task's slot while state is loaded.
 *
 * <p>A partition is loaded twice. First into a store that Spark does not know of yet, which may take
 * batches: if Spark knew, it would send the partition's task here at once, or close the store as
 * soon as the old owner's task ran. Then, when the version that the task here will ask for is final,
 * the store is handed to Spark and brought to that version, which reads what changed since.
 */
public final class PreloadTask extends AbstractFunction2 implements Serializable {
  private static final long serialVersionUID = 1L;

  /** A thread that holds a store for 120 s makes a task that waits for it fail. */
  private static final long LONGEST_HAND_OVER_MS = 60000L;

  public static final int LOAD = 0;
  public static final int HAND_OVER = 1;
  public static final int DROP = 2;
  public static final int REHEARSE = 3;

  /** A state store of one operator, of any partition. */
  public static final class Store implements Serializable {
    private static final long serialVersionUID = 1L;
    public String runId;
    public String stateRoot;
    public long operator;
    public String name;
    public StructType keySchema;
    public StructType valueSchema;
    public KeyStateEncoderSpec keyEncoder;
    public Option schemas; // of StateSchemaBroadcast
    public boolean columnFamilies;
    public boolean multipleValues;
    public StateStoreConf conf;
    public Broadcast hadoopConf;
  }

  /** What to do with the stores of one partition; a rehearsal has none. */
  public static final class Order implements Serializable {
    private static final long serialVersionUID = 1L;
    public long number;
    public int step;
    public int partition;
    public Store[] stores;
    public long[] versions;       // of each store
    public Option[] checkpointIds; // of each store
  }

  private static final class Held {
    long order;
    StateStoreProvider provider;
    boolean isLoading = true;
    boolean wasKnown; // Spark had a store of the partition here, from an earlier time
  }

  /** Stores that are loaded, and that Spark does not know of: StateStoreProviderId to Held. */
  private static final Map HELD = new HashMap();

  /** The last order of each store, by its StateStoreProviderId: threads may run in any order. */
  private static final Map NEWEST = new HashMap();

  /** One load at a time: each takes its own time, and little from the tasks beside it. */
  private static final ExecutorService LOADS = Executors.newSingleThreadExecutor(new Daemons());

  private static final ConcurrentLinkedQueue ANSWERS = new ConcurrentLinkedQueue();
  private static final Timer LIMIT = new Timer("balancedstream-preload-limit", true);

  private final String executor;
  private final Order[] orders;

  public PreloadTask(String executor, Order[] orders) {
    this.executor = executor;
    this.orders = orders;
  }

  /**
   * Begins the orders; returns the answers to earlier ones: a line each, with its number, its
   * milliseconds, and why it failed.
   */
  public Object apply(Object context, Object elements) {
    StringBuilder answers = new StringBuilder();
    String here = findExecutor();
    if (!here.equals(executor)) {
      // The answers of this executor come with its own jobs.
      for (int i = 0; i < orders.length; i++) {
        answers.append(orders[i].number).append("\t0\tran on executor ").append(here).append('\n');
      }
      return answers.toString();
    }
    for (int i = 0; i < orders.length; i++) {
      try {
        begin(orders[i]);
      } catch (Throwable e) {
        // As where the system gives no more threads. The other orders are begun all the same.
        ANSWERS.add(orders[i].number + "\t0\t" + describe(e));
      }
    }
    String answer = (String) ANSWERS.poll();
    while (answer != null) {
      answers.append(answer).append('\n');
      answer = (String) ANSWERS.poll();
    }
    return answers.toString();
  }

  private static void begin(Order order) {
    Work work = new Work(order);
    work.announce();
    // A hand-over does not wait for loads: the batch is about to end.
    boolean isLoad = order.step == LOAD || order.step == REHEARSE;
    if (isLoad) LOADS.execute(work);
    else new Daemons().newThread(work).start();
  }

  /** By method handles: any other way looks for classes in SparkEnv that Spark ships renamed. */
  private static String findExecutor() {
    try {
      Class type = Class.forName("org.apache.spark.SparkEnv");
      MethodHandles.Lookup lookup = MethodHandles.publicLookup();
      Object env = lookup.findStatic(type, "get", MethodType.methodType(type))
          .invokeWithArguments(new Object[0]);
      return (String) lookup.findVirtual(type, "executorId", MethodType.methodType(String.class))
          .invokeWithArguments(new Object[] {env});
    } catch (Throwable e) {
      throw new IllegalStateException(e);
    }
  }

  /** A failure on one line of an answer. */
  public static String describe(Throwable failure) {
    return String.valueOf(failure).replace('\n', ' ').replace('\t', ' ');
  }

  private static final class Daemons implements ThreadFactory {
    public Thread newThread(Runnable work) {
      Thread thread = new Thread(work, "balancedstream-preload");
      thread.setDaemon(true);
      return thread;
    }
  }

  private static final class Interruption extends TimerTask {
    private final Thread thread;

    Interruption(Thread thread) {
      this.thread = thread;
    }

    public void run() {
      thread.interrupt();
    }
  }

  private static final class Work implements Runnable {
    private final Order order;

    Work(Order order) {
      this.order = order;
    }

    /** Makes all earlier orders of the same stores old. */
    void announce() {
      synchronized (HELD) {
        for (int i = 0; i < order.stores.length; i++) {
          NEWEST.put(identify(order.stores[i]), Long.valueOf(order.number));
        }
      }
    }

    public void run() {
      long startNs = System.nanoTime();
      Interruption limit = new Interruption(Thread.currentThread());
      String failure = "";
      try {
        // While it loads, nobody waits for the store.
        if (order.step == HAND_OVER) LIMIT.schedule(limit, LONGEST_HAND_OVER_MS);
        if (order.step == REHEARSE) Rehearsal.run();
        for (int i = 0; i < order.stores.length; i++) {
          String ofStore = runFor(order.stores[i], i);
          if (!ofStore.isEmpty()) failure = ofStore;
        }
      } catch (Throwable e) {
        failure = describe(e);
      } finally {
        limit.cancel();
        long tookMs = (System.nanoTime() - startNs) / 1000000L;
        ANSWERS.add(order.number + "\t" + tookMs + "\t" + failure);
      }
    }

    /** What the order says for one store; returns why it failed. */
    private String runFor(Store store, int i) {
      try {
        if (order.step == LOAD) load(store, order.versions[i], order.checkpointIds[i]);
        else if (order.step == HAND_OVER) {
          handOver(store, order.versions[i], order.checkpointIds[i]);
        } else drop(store);
        return "";
      } catch (Throwable e) {
        return describe(e);
      }
    }

    private StateStoreProviderId identify(Store store) {
      return new StateStoreProviderId(
          new StateStoreId(store.stateRoot, store.operator, order.partition, store.name),
          UUID.fromString(store.runId));
    }

    /** Loads a version; of a store that an earlier order loaded, only what changed since. */
    private void load(Store store, long version, Option checkpointId) throws Exception {
      StateStoreProviderId id = identify(store);
      Held before = take(id);
      if (!isNewest(id)) {
        if (before != null) before.provider.close();
        return;
      }
      Held held = new Held();
      held.order = order.number;
      held.wasKnown = before == null ? isKnown(id) : before.wasKnown;
      held.provider = before != null ? before.provider : StateStoreProvider$.MODULE$.createAndInit(
          id, store.keySchema, store.valueSchema, store.keyEncoder, store.columnFamilies,
          store.conf, copyConf(store), store.multipleValues, store.schemas);
      boolean isWanted;
      synchronized (HELD) {
        isWanted = isNewest(id);
        if (isWanted) HELD.put(id, held);
      }
      boolean isLoaded = false;
      try {
        boolean isUpToDate = isWanted && before != null
            && StoreChanges.replay(held.provider, version, checkpointId, store.columnFamilies);
        // Not abort(), which makes the store forget what it loaded.
        if (isWanted && !isUpToDate) held.provider.getReadStore(version, checkpointId).release();
        isLoaded = isWanted;
      } finally {
        synchronized (HELD) {
          held.isLoading = false;
          isWanted = HELD.get(id) == held;
          if (isWanted && !isLoaded) HELD.remove(id);
        }
        if (!isWanted || !isLoaded) held.provider.close();
      }
    }

    /**
     * What an earlier order loaded, which is held no more; null if there is nothing. While the store
     * is being loaded, the thread that loads it closes it, because it holds the store's lock.
     */
    private Held take(StateStoreProviderId id) {
      synchronized (HELD) {
        Held held = (Held) HELD.get(id);
        if (held == null || held.order > order.number) return null;
        HELD.remove(id);
        return held.isLoading ? null : held;
      }
    }

    private void drop(Store store) {
      StateStoreProviderId id = identify(store);
      Held held = take(id);
      forget(id);
      if (held != null) held.provider.close();
    }

    private void forget(StateStoreProviderId id) {
      synchronized (HELD) {
        if (isNewest(id)) NEWEST.remove(id);
      }
    }

    /** Whether no later order for the store has come, as while this one waited for its turn. */
    private boolean isNewest(StateStoreProviderId id) {
      synchronized (HELD) {
        return Long.valueOf(order.number).equals(NEWEST.get(id));
      }
    }

    private void handOver(Store store, long version, Option checkpointId) throws Exception {
      StateStoreProviderId id = identify(store);
      Held held = take(id);
      forget(id);
      if (held != null) {
        boolean isUpToDate = false;
        boolean isGiven = false;
        boolean isFree = true; // nobody here holds it
        StoreChanges changes = null;
        try {
          changes = new StoreChanges(held.provider);
          isFree = false;
          // Before it is up to date: a task that comes meanwhile waits, and need not load it all.
          isGiven = register(id, held.provider);
          if (isGiven) isUpToDate = changes.replay(version, checkpointId, store.columnFamilies);
        } finally {
          try {
            if (changes != null) changes.release();
            isFree = true;
          } finally {
            if (!isGiven) held.provider.close();
            else if (!isFree) withdraw(id);
          }
        }
        // The task that waited for it may have written the next version already: to ask for this one
        // would fetch it all again.
        if (isUpToDate) return;
        if (!isGiven && !held.wasKnown) {
          throw new IllegalStateException("the partition's task was here first");
        }
      }
      // Read-only: no changelog is begun.
      ReadStateStore read = StateStore$.MODULE$.getReadOnly(
          id, store.keySchema, store.valueSchema, store.keyEncoder, version, checkpointId,
          store.schemas, store.columnFamilies, store.conf, copyConf(store), store.multipleValues);
      boolean isFree = false;
      try {
        read.release();
        isFree = true;
      } finally {
        if (!isFree) withdraw(id);
      }
    }

    /**
     * Gives a store to Spark, and tells the coordinator so, as one step: Spark closes what it has here
     * and the coordinator does not know of. False if Spark has a store from an earlier time.
     */
    private static boolean register(StateStoreProviderId id, StateStoreProvider provider)
        throws Exception {
      Method report = StateStore$.class.getDeclaredMethod(
          "reportActiveStoreInstance", new Class[] {StateStoreProviderId.class, Seq.class});
      report.setAccessible(true);
      scala.collection.mutable.HashMap known = findKnown();
      synchronized (known) {
        if (known.contains(id)) return false;
        known.put(id, provider);
        boolean isReported = false;
        try {
          report.invoke(StateStore$.MODULE$, new Object[] {id, Nil$.MODULE$});
          isReported = true;
        } finally {
          // Its owner closes it now, and a task must not find a closed store.
          if (!isReported) known.remove(id);
        }
        return true;
      }
    }

    /** Takes a store that cannot be released from Spark: each task would wait for it, and fail. */
    private static void withdraw(StateStoreProviderId id) throws Exception {
      scala.collection.mutable.HashMap known = findKnown();
      Option found;
      synchronized (known) {
        found = known.remove(id);
      }
      if (found.isDefined()) ((StateStoreProvider) found.get()).close();
    }

    private static boolean isKnown(StateStoreProviderId id) throws Exception {
      scala.collection.mutable.HashMap known = findKnown();
      synchronized (known) {
        return known.contains(id);
      }
    }

    /** The stores of this executor that Spark knows of. */
    private static scala.collection.mutable.HashMap findKnown() throws Exception {
      Field field = StateStore$.class.getDeclaredField("loadedProviders");
      field.setAccessible(true);
      return (scala.collection.mutable.HashMap) field.get(null);
    }

    /** As the query's own tasks have it; a copy, because they share the broadcast one. */
    private static Configuration copyConf(Store store) {
      Configuration conf =
          new Configuration(((SerializableConfiguration) store.hadoopConf.value()).value());
      conf.set(StreamExecution$.MODULE$.RUN_ID_KEY(), store.runId);
      return conf;
    }
  }
}
