package io.balancedstream;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.ThreadFactory;
import java.util.function.BiConsumer;
import org.apache.spark.SparkContext;
import org.apache.spark.rdd.RDD;

/**
 * Takes orders to executors by jobs of one task each, one at a time for an executor, and brings
 * their answers back. An order runs on after its job; a later job brings the answer. While a query
 * in Real-Time Mode runs, a job needs a slot that nobody else does: any other would end that query.
 * Without one, an order is refused.
 */
public final class SideJobs {
  /** Under Spark's FAIR scheduler such a job gets the next free slot of its executor. */
  private static final String POOL = "balancedstream";

  /** Of all these jobs, which are cancelled together. */
  private static final String GROUP = "balancedstream-side-jobs";

  /** Between two jobs that only ask: tasks may end every few milliseconds. */
  private static final long LEAST_PAUSE_MS = 1000L;

  private static final String REFUSED =
      "no slot is left for it while a query in Real-Time Mode runs";

  private static final class Target {
    String host;
    List pending = new ArrayList(); // of PreloadTask.Order
    boolean busy;
    Set unanswered = new HashSet(); // numbers of orders that were sent
    long askedMs;
  }

  private static final class Daemons implements ThreadFactory {
    public Thread newThread(Runnable work) {
      Thread thread = new Thread(work, "balancedstream-side-jobs");
      thread.setDaemon(true);
      return thread;
    }
  }

  /** Answers orders that find no slot: from a thread of its own, as who is answered may lock. */
  private final class Refusal implements Runnable {
    private final List orders;

    Refusal(List orders) {
      this.orders = orders;
    }

    public void run() {
      for (int i = 0; i < orders.size(); i++) {
        PreloadTask.Order order = (PreloadTask.Order) orders.get(i);
        tell(new String[] {String.valueOf(order.number), "0", REFUSED});
      }
    }
  }

  private final class Job implements Runnable {
    private final String executor;
    private final Target target;
    private final PreloadTask.Order[] orders;

    Job(String executor, Target target, PreloadTask.Order[] orders) {
      this.executor = executor;
      this.target = target;
      this.orders = orders;
    }

    public void run() {
      StringBuilder answers = new StringBuilder();
      List again = new ArrayList();
      try {
        answers.append(runOn(executor, target.host, orders));
      } catch (Throwable e) {
        String failure = PreloadTask.describe(e);
        boolean isCancelled = slots.isRealTime();
        for (int i = 0; i < orders.length; i++) {
          // To drop a store twice does no harm, and to keep one that nobody wants does.
          if (isCancelled && orders[i].step == PreloadTask.DROP) again.add(orders[i]);
          else answers.append(orders[i].number).append("\t0\t").append(failure).append('\n');
        }
      }
      String[] lines = answers.length() == 0 ? new String[0] : answers.toString().split("\n");
      String[][] parts = new String[lines.length][];
      for (int i = 0; i < lines.length; i++) parts[i] = lines[i].split("\t", 3);
      finish(executor, target, parts, again);
      for (int i = 0; i < parts.length; i++) tell(parts[i]);
    }

  }

  /** Each answer by itself: one that cannot be used, such as of a query that ends, loses no other. */
  private void tell(String[] answer) {
    try {
      consumer.accept(
          Long.valueOf(answer[0]), new Object[] {Long.valueOf(answer[1]), answer[2]});
    } catch (RuntimeException e) {
      // What waits for it gives up in time.
    }
  }

  private final SparkContext context;
  private final ExecutorService threads = Executors.newCachedThreadPool(new Daemons());
  private final HeldSlots slots;
  private final Map targets = new HashMap(); // executor id -> Target that has something to do
  private BiConsumer consumer;

  public SideJobs(SparkContext context, HeldSlots slots) {
    this.context = context;
    this.slots = slots;
  }

  /** Who gets the number of each order that is answered, with its milliseconds and its failure. */
  public void setConsumer(BiConsumer consumer) {
    this.consumer = consumer;
  }

  /** Sends an order as soon as the executor has done with the job before. */
  public synchronized void send(String executor, String host, PreloadTask.Order order) {
    Target target = (Target) targets.get(executor);
    if (target == null) {
      target = new Target();
      target.host = host;
      targets.put(executor, target);
    }
    target.pending.add(order);
    begin(executor, target);
  }

  /** Sends what waits, and asks for the answers that are missing, at most once a second. */
  public synchronized void ask() {
    long nowMs = System.currentTimeMillis();
    for (Object each : targets.entrySet()) {
      Map.Entry entry = (Map.Entry) each;
      Target target = (Target) entry.getValue();
      boolean asks = !target.unanswered.isEmpty() && nowMs - target.askedMs >= LEAST_PAUSE_MS;
      if (asks || !target.pending.isEmpty()) begin((String) entry.getKey(), target);
    }
  }

  /** A query ended: what was not sent of it is not sent any more. */
  public synchronized void endRun(String runId) {
    for (Object each : targets.values()) {
      Iterator orders = ((Target) each).pending.iterator();
      while (orders.hasNext()) {
        PreloadTask.Order order = (PreloadTask.Order) orders.next();
        boolean isWork = order.step == PreloadTask.LOAD || order.step == PreloadTask.HAND_OVER;
        if (isWork && order.stores[0].runId.equals(runId)) orders.remove();
      }
    }
  }

  /** Takes an order back that was not sent yet. */
  public synchronized void withdraw(String executor, long number) {
    Target target = (Target) targets.get(executor);
    if (target == null) return;
    Iterator orders = target.pending.iterator();
    while (orders.hasNext()) {
      if (((PreloadTask.Order) orders.next()).number == number) orders.remove();
    }
  }

  /** A query in Real-Time Mode began: what runs now is in its way. */
  public void cancel() {
    context.cancelJobGroup(GROUP);
  }

  /** An executor is gone, and so are its answers. */
  public synchronized void forget(String executor) {
    targets.remove(executor);
  }

  private void begin(String executor, Target target) {
    if (target.busy) return;
    if (!slots.reserve()) {
      refuse(target);
      return;
    }
    target.busy = true;
    PreloadTask.Order[] orders =
        (PreloadTask.Order[]) target.pending.toArray(new PreloadTask.Order[0]);
    target.pending.clear();
    target.askedMs = System.currentTimeMillis();
    for (int i = 0; i < orders.length; i++) target.unanswered.add(Long.valueOf(orders[i].number));
    try {
      threads.execute(new Job(executor, target, orders));
    } catch (Throwable e) {
      // Where the system gives no more threads, `ask` tries again. An error would end Spark's bus.
      takeBack(target, orders);
    }
  }

  /** Says that what waits is not done; a store that nobody wants is dropped later. */
  private void refuse(Target target) {
    List refused = new ArrayList();
    Iterator orders = target.pending.iterator();
    while (orders.hasNext()) {
      PreloadTask.Order order = (PreloadTask.Order) orders.next();
      if (order.step == PreloadTask.DROP) continue;
      orders.remove();
      refused.add(order);
    }
    if (!refused.isEmpty()) threads.execute(new Refusal(refused));
  }

  private void takeBack(Target target, PreloadTask.Order[] orders) {
    target.busy = false;
    slots.release();
    for (int i = 0; i < orders.length; i++) {
      target.pending.add(orders[i]);
      target.unanswered.remove(Long.valueOf(orders[i].number));
    }
  }

  private synchronized void finish(
      String executor, Target target, String[][] answers, List again) {
    target.busy = false;
    slots.release();
    for (int i = 0; i < again.size(); i++) {
      target.unanswered.remove(Long.valueOf(((PreloadTask.Order) again.get(i)).number));
    }
    target.pending.addAll(0, again);
    for (int i = 0; i < answers.length; i++) target.unanswered.remove(Long.valueOf(answers[i][0]));
    if (!target.pending.isEmpty()) begin(executor, target);
    else if (target.unanswered.isEmpty()) targets.remove(executor, target);
  }

  private String runOn(String executor, String host, PreloadTask.Order[] orders) {
    Properties own = new Properties(); // and none of a query's, to which the job would be counted
    own.setProperty("spark.scheduler.pool", POOL);
    own.setProperty("spark.jobGroup.id", GROUP);
    own.setProperty("spark.job.description", "balancedstream: state is loaded ahead of moves");
    context.setLocalProperties(own);
    List elements = new ArrayList();
    elements.add("");
    RDD rdd = PinnedRows.pin(context, executor, host, elements);
    List partitions = new ArrayList();
    partitions.add(Integer.valueOf(0));
    Object[] results = (Object[]) context.runJob(
        rdd, new PreloadTask(executor, orders), ScalaCollections.toSeq(partitions), PinnedRows.ANY);
    return (String) results[0];
  }
}
