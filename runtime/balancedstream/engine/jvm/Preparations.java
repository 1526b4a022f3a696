package io.balancedstream;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.function.BiConsumer;
import org.apache.spark.sql.execution.streaming.state.StateStoreCoordinatorRef;
import scala.Option;

/**
 * The partitions whose state another executor loads ahead: what has been sent there, and what came
 * of it.
 *
 * <p>A preparation is first `loading`, then `loaded`. When the partition's task has ended too, and
 * before its batch has, the target is told to take the state over at the version which that task
 * wrote, and the preparation is `due`: the next task may run on the target. Where stores cannot be
 * opened ahead it is `impossible`; if anything goes wrong, `failed`. Then the move is made as if
 * nothing had been prepared.
 */
public final class Preparations implements Preparing, BiConsumer {
  /** A hand-over without an answer after this time has failed; the target gives up earlier. */
  private static final long LONGEST_HAND_OVER_MS = 90000L;

  /** More changes than these are not left to a hand-over, which tasks may wait for. */
  private static final long MOST_TO_HAND_OVER = 4L;

  /** Each order takes a thread of the driver until a slot of the executor is free. */
  private static final int REHEARSALS_AT_ONCE = 16;

  /**
   * A load may take batches, and wait for others. If an executor ends none for this time, the moves
   * that wait for it are made without their loads.
   */
  private static final long LONGEST_LOAD_MS = 600000L;

  private static final class Preparation {
    String runId;
    long[] operators; // those that share their tasks
    int partition;
    String executor;
    int partner;      // the partition that moves in the same batch; NONE for any batch
    long fromBatch;
    String state = "loading";
    long order;       // without an answer; 0 if there is none
    long sinceMs = System.currentTimeMillis(); // of the last order, or of the wish for one
    boolean loads;    // the target has, or may have, a store that Spark does not know of
    long version;     // that the last load was told to load
    long behind = Long.MAX_VALUE; // versions that the last load after the first had to make good
    long loadMs = -1L; // of the first load
    boolean first;    // the executor had loaded none before, so classes were loaded too
    long handOverMs = -1L;
    String failure = "";

    void fail(String why) {
      failure = why;
      order = 0L;
      if (!state.equals("due")) state = "failed";
    }
  }

  /** A query, as of the last batch that was seen. */
  private static final class Run {
    long batch = -1L;
    boolean ended;                    // all of that batch's tasks, so that its placements are set
    Map operators = new HashMap();    // operator id -> StateStoreWriter
    Map stores = new HashMap();       // operator id -> Store[], or String: why there are none
    Map preparations = new HashMap(); // operator/partition -> Preparation, under each operator
    List givenUp = new ArrayList();   // Preparation whose target had taken over the state
  }

  private final StateStores stateStores;
  private final SideJobs jobs;
  private final Map hosts;                  // live executor id -> host
  private final StateStoreCoordinatorRef coordinator;
  private final Map runs = new HashMap();   // run id -> Run
  private final Map orders = new HashMap(); // number -> Preparation that waits for the answer
  private final Map loadEndMs = new HashMap(); // executor id -> when it last ended a load
  private final Map rehearsals = new HashMap(); // executor id -> number of its order; 0: no more
  private boolean loadsAhead; // the state of a query that was seen
  private long lastOrder;

  public Preparations(
      Map activeStreamingQueries, SideJobs jobs, Map hosts, StateStoreCoordinatorRef coordinator) {
    this.stateStores = new StateStores(activeStreamingQueries);
    this.jobs = jobs;
    this.hosts = hosts;
    this.coordinator = coordinator;
    jobs.setConsumer(this);
  }

  public synchronized void prepare(
      String runId, long[] operators, String[] executors, int[] partners, long fromBatch) {
    Run run = find(runId);
    for (int p = 0; p < executors.length; p++) {
      Preparation before = (Preparation) run.preparations.get(operators[0] + "/" + p);
      if (before != null) {
        before.fromBatch = fromBatch;
        before.partner = partners[p];
        if (before.executor.equals(executors[p])) continue;
        for (int i = 0; i < before.operators.length; i++) {
          run.preparations.remove(before.operators[i] + "/" + p);
        }
        giveUp(run, before);
      }
      if (executors[p].isEmpty()) continue;
      Preparation preparation = new Preparation();
      preparation.runId = runId;
      preparation.operators = operators;
      preparation.partition = p;
      preparation.executor = executors[p];
      preparation.fromBatch = fromBatch;
      preparation.partner = partners[p];
      for (int i = 0; i < operators.length; i++) {
        run.preparations.put(operators[i] + "/" + p, preparation);
      }
      load(run, preparation);
    }
  }

  public synchronized void endTask(String runId, long batch, long operator, int partition) {
    Run run = find(runId);
    try {
      if (run.batch != batch) observe(runId, run, batch);
      Preparation preparation = (Preparation) run.preparations.get(operator + "/" + partition);
      if (preparation != null && run.batch == batch) handOver(run, preparation);
    } catch (RuntimeException e) {
      // As of a plan with what is not known here. What the batch has cost is reported all the same.
      for (Object each : new HashSet(run.preparations.values())) {
        fail((Preparation) each, PreloadTask.describe(e));
      }
    }
    // Also of executors that run no task now, such as new ones.
    jobs.ask();
  }

  /** What waits too long for an answer has failed; all executors are asked for theirs. */
  public synchronized void endBatch(String runId) {
    Run run = find(runId);
    run.ended = true;
    long nowMs = System.currentTimeMillis();
    for (Object each : new HashSet(run.preparations.values())) {
      Preparation preparation = (Preparation) each;
      boolean loading = preparation.state.equals("loading");
      boolean waits = preparation.order != 0L || loading;
      long longestMs = loading ? LONGEST_LOAD_MS : LONGEST_HAND_OVER_MS;
      Long endMs = loading ? (Long) loadEndMs.get(preparation.executor) : null;
      long sinceMs = endMs == null
          ? preparation.sinceMs : Math.max(preparation.sinceMs, endMs.longValue());
      if (waits && nowMs - sinceMs > longestMs) {
        fail(preparation, "no answer in " + longestMs / 1000L + " s");
      }
    }
    jobs.ask();
  }

  /**
   * Once the partition's task of this batch has ended, and its load, and that of its partner. A load
   * that took many batches is followed by others, of what changed meanwhile, as long as each leaves
   * half as much to do.
   */
  private void handOver(Run run, Preparation preparation) {
    if (run.ended || !preparation.state.equals("loaded")) return;
    if (preparation.fromBatch > run.batch + 1L) return;
    long behind = countBehind(run, preparation);
    if (isTooFarBehind(preparation, behind)) {
      if (!send(run, preparation, PreloadTask.LOAD)) return;
      preparation.behind = behind;
      preparation.state = "loading";
      return;
    }
    Preparation partner = findPartner(run, preparation);
    if (isStillLoading(run, partner) || !send(run, preparation, PreloadTask.HAND_OVER)) return;
    preparation.state = "due";
    // Its task may have ended before.
    if (partner != null) handOver(run, partner);
  }

  /** Versions that a hand-over in this batch would have to read. */
  private static long countBehind(Run run, Preparation preparation) {
    Object operator = run.operators.get(Long.valueOf(preparation.operators[0]));
    return operator == null ? 0L : StateStores.readVersion(operator) + 1L - preparation.version;
  }

  private static boolean isTooFarBehind(Preparation preparation, long behind) {
    return behind > MOST_TO_HAND_OVER && behind <= preparation.behind / 2L;
  }

  private static Preparation findPartner(Run run, Preparation preparation) {
    return (Preparation) run.preparations.get(preparation.operators[0] + "/" + preparation.partner);
  }

  /** Whether a partner is not as far as that both may move in this batch; there may be none. */
  private static boolean isStillLoading(Run run, Preparation partner) {
    if (partner == null) return false;
    if (partner.state.equals("loading")) return true;
    return partner.state.equals("loaded") && isTooFarBehind(partner, countBehind(run, partner));
  }

  public synchronized boolean holdsBack(
      String runId, long operator, int partition, String executor) {
    Preparation preparation = (Preparation) find(runId).preparations.get(operator + "/" + partition);
    if (preparation == null || !preparation.executor.equals(executor)) return false;
    return preparation.state.equals("loading") || preparation.state.equals("loaded");
  }

  public synchronized List takeGivenUp(String runId) {
    Run run = find(runId);
    List places = new ArrayList();
    Iterator it = run.givenUp.iterator();
    while (it.hasNext()) {
      Preparation preparation = (Preparation) it.next();
      for (int i = 0; i < preparation.operators.length; i++) {
        places.add(preparation.operators[i] + "/" + preparation.partition);
      }
      // Until the target has answered, it may still tell Spark that it has the state.
      if (preparation.order == 0L) it.remove();
    }
    return places;
  }

  public synchronized void makeRoom() {
    jobs.cancel();
  }

  public synchronized void removeExecutor(String executor) {
    jobs.forget(executor);
    loadEndMs.remove(executor);
    rehearsals.remove(executor);
    for (Object each : new HashSet(orders.values())) {
      Preparation preparation = (Preparation) each;
      if (preparation.executor.equals(executor)) fail(preparation, "executor " + executor + " is gone");
    }
    for (Object run : runs.values()) {
      for (Object each : ((Run) run).preparations.values()) {
        Preparation preparation = (Preparation) each;
        if (preparation.executor.equals(executor)) fail(preparation, "executor " + executor + " is gone");
      }
    }
  }

  public synchronized void endRun(String runId) {
    Run run = (Run) runs.remove(runId);
    if (run != null) {
      jobs.endRun(runId);
      for (Object each : new HashSet(run.preparations.values())) giveUp(run, (Preparation) each);
    }
    // Orders may have waited for the end of this query.
    jobs.ask();
  }

  public synchronized void close() {
    for (Object each : new ArrayList(runs.keySet())) endRun((String) each);
  }

  public synchronized String toJson(String runId) {
    StringBuilder json = new StringBuilder();
    Run run = find(runId);
    for (Object each : new HashSet(run.preparations.values())) {
      Preparation preparation = (Preparation) each;
      // What is loaded and waits for another load is not late.
      boolean waits = preparation.state.equals("loaded")
          && isStillLoading(run, findPartner(run, preparation));
      if (json.length() > 0) json.append(',');
      json.append('[').append(preparation.operators[0]).append(',').append(preparation.partition)
          .append(',').append(StatefulOperators.quote(preparation.executor)).append(",\"")
          .append(waits ? "loading" : preparation.state).append("\",").append(preparation.loadMs).append(',')
          .append(preparation.handOverMs).append(',').append(preparation.first).append(',')
          .append(StatefulOperators.quote(preparation.failure)).append(']');
    }
    return json.toString();
  }

  /** An order was answered: its number, and its milliseconds with the failure. */
  public synchronized void accept(Object number, Object answer) {
    if (endRehearsal(number, answer)) return;
    Preparation preparation = (Preparation) orders.remove(number);
    if (preparation == null) return;
    // Its target has told Spark that it holds the state of a query that is over.
    if (!runs.containsKey(preparation.runId)) deactivate(preparation.runId);
    if (preparation.order != ((Long) number).longValue()) return;
    Long tookMs = (Long) ((Object[]) answer)[0];
    String failure = (String) ((Object[]) answer)[1];
    preparation.order = 0L;
    if (!failure.isEmpty()) {
      preparation.fail(failure);
    } else if (preparation.state.equals("due")) {
      preparation.handOverMs = tookMs.longValue();
      preparation.loads = false;
    } else {
      boolean isFirst =
          loadEndMs.put(preparation.executor, Long.valueOf(System.currentTimeMillis())) == null;
      if (preparation.loadMs < 0L) {
        preparation.loadMs = tookMs.longValue();
        preparation.first = isFirst;
      }
      preparation.state = "loaded";
      Run run = (Run) runs.get(preparation.runId);
      if (run != null) handOver(run, preparation);
    }
  }

  private void deactivate(String runId) {
    coordinator.deactivateInstances(UUID.fromString(runId));
  }

  /** Looks at a new batch of a query; what waited for a first look is sent. */
  private void observe(String runId, Run run, long batch) {
    Map found = stateStores.findOperators(runId, batch);
    if (found == null) return;
    run.batch = batch;
    run.ended = false;
    run.operators = found;
    for (Object each : found.entrySet()) {
      Map.Entry entry = (Map.Entry) each;
      if (run.stores.get(entry.getKey()) instanceof PreloadTask.Store[]) continue;
      Object stores;
      try {
        stores = StateStores.describe(entry.getValue());
      } catch (Exception e) {
        boolean isFirst = StateStores.readVersion(entry.getValue()) == 0L;
        // The first batch does so for an initial state, and no other.
        if (e instanceof IllegalStateException && isFirst) continue;
        stores = e instanceof UnsupportedOperationException ? e.getMessage() : String.valueOf(e);
      }
      run.stores.put(entry.getKey(), stores);
      loadsAhead |= stores instanceof PreloadTask.Store[];
    }
    if (loadsAhead) rehearse();
    for (Object each : new HashSet(run.preparations.values())) {
      Preparation preparation = (Preparation) each;
      if (preparation.state.equals("loading") && preparation.order == 0L) load(run, preparation);
    }
  }

  /** Executors that were told to load nothing yet load a small state of their own, a few at once. */
  private void rehearse() {
    int sent = 0;
    for (Object number : rehearsals.values()) {
      if (((Long) number).longValue() != 0L) sent++;
    }
    for (Object each : hosts.entrySet()) {
      Map.Entry entry = (Map.Entry) each;
      if (sent >= REHEARSALS_AT_ONCE || rehearsals.containsKey(entry.getKey())) continue;
      sent++;
      PreloadTask.Order order = new PreloadTask.Order();
      order.number = ++lastOrder;
      order.step = PreloadTask.REHEARSE;
      order.stores = new PreloadTask.Store[0];
      rehearsals.put(entry.getKey(), Long.valueOf(order.number));
      jobs.send((String) entry.getKey(), (String) entry.getValue(), order);
    }
  }

  /** Whether it was a rehearsal that was answered. If it failed, the next load is the first. */
  private boolean endRehearsal(Object number, Object answer) {
    for (Object each : rehearsals.entrySet()) {
      Map.Entry entry = (Map.Entry) each;
      if (!entry.getValue().equals(number)) continue;
      entry.setValue(Long.valueOf(0L));
      boolean isDone = ((String) ((Object[]) answer)[1]).isEmpty();
      if (isDone) loadEndMs.put(entry.getKey(), Long.valueOf(System.currentTimeMillis()));
      return true;
    }
    return false;
  }

  private void load(Run run, Preparation preparation) {
    for (int i = 0; i < preparation.operators.length; i++) {
      Object stores = run.stores.get(Long.valueOf(preparation.operators[i]));
      if (stores instanceof String) {
        preparation.fail((String) stores);
        preparation.state = "impossible";
        return;
      }
    }
    send(run, preparation, PreloadTask.LOAD);
  }

  /** Sends an order for a partition; false if what it needs is not known now. */
  private boolean send(Run run, Preparation preparation, int step) {
    String host = (String) hosts.get(preparation.executor);
    if (host == null) {
      preparation.fail("executor " + preparation.executor + " is gone");
      return false;
    }
    List stores = new ArrayList();
    List versions = new ArrayList();
    List checkpointIds = new ArrayList();
    for (int i = 0; i < preparation.operators.length; i++) {
      Long id = Long.valueOf(preparation.operators[i]);
      Object operator = run.operators.get(id);
      Object known = run.stores.get(id);
      if (operator == null || !(known instanceof PreloadTask.Store[])) return false;
      PreloadTask.Store[] ofOperator = (PreloadTask.Store[]) known;
      long version = StateStores.readVersion(operator);
      String[] ids = StateStores.writtenCheckpointIds(operator, preparation.partition);
      if (ids != null) version++;
      else if (step == PreloadTask.LOAD) {
        ids = StateStores.readCheckpointIds(operator, preparation.partition);
      }
      if (step != PreloadTask.DROP && (ids == null || ids.length != ofOperator.length)) return false;
      for (int s = 0; s < ofOperator.length; s++) {
        stores.add(ofOperator[s]);
        versions.add(Long.valueOf(version));
        checkpointIds.add(ids == null ? Option.empty() : Option.apply(ids[s]));
      }
    }
    PreloadTask.Order order = new PreloadTask.Order();
    order.number = ++lastOrder;
    order.step = step;
    order.partition = preparation.partition;
    order.stores = (PreloadTask.Store[]) stores.toArray(new PreloadTask.Store[0]);
    order.versions = new long[versions.size()];
    for (int i = 0; i < order.versions.length; i++) {
      order.versions[i] = ((Long) versions.get(i)).longValue();
    }
    order.checkpointIds = (Option[]) checkpointIds.toArray(new Option[0]);
    if (step != PreloadTask.DROP) {
      preparation.order = order.number;
      preparation.sinceMs = System.currentTimeMillis();
      preparation.loads = true;
      orders.put(Long.valueOf(order.number), preparation);
    }
    if (step == PreloadTask.LOAD) {
      preparation.version = order.versions[0];
      rehearsals.putIfAbsent(preparation.executor, Long.valueOf(0L));
    }
    jobs.send(preparation.executor, host, order);
    return true;
  }

  private void fail(Preparation preparation, String why) {
    orders.remove(Long.valueOf(preparation.order));
    preparation.fail(why);
  }

  private void giveUp(Run run, Preparation preparation) {
    if (preparation.state.equals("due")) {
      run.givenUp.add(preparation);
    } else {
      orders.remove(Long.valueOf(preparation.order));
      jobs.withdraw(preparation.executor, preparation.order);
      preparation.order = 0L;
    }
    if (preparation.loads && hosts.containsKey(preparation.executor)) {
      send(run, preparation, PreloadTask.DROP);
    }
  }

  private Run find(String runId) {
    Run run = (Run) runs.get(runId);
    if (run == null) {
      run = new Run();
      runs.put(runId, run);
    }
    return run;
  }
}
