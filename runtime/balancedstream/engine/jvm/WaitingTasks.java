package io.balancedstream;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.Iterator;
import java.util.Map;
import java.util.Timer;
import java.util.TimerTask;
import org.apache.spark.SparkConf;
import org.apache.spark.scheduler.SparkListenerStageSubmitted;
import org.apache.spark.scheduler.TaskSchedulerImpl;
import org.apache.spark.scheduler.TaskSetManager;
import org.apache.spark.storage.RDDInfo;

/**
 * How long tasks wait for the executor that they prefer.
 *
 * <p>Those with state wait for it as long as `spark.locality.wait.process` says. Spark reads it for
 * each stage, and for running ones when an executor joins or is lost: before anybody hears of it who
 * could set another wait. Tasks that read a source have no state, and some sources prefer executors,
 * as Kafka's does, also one that has just joined: they wait as long as they would without us, and
 * not at all while executors are warmed up, which takes long and keeps their slots.
 */
public final class WaitingTasks {
  private static final long AS_ALL = -1L;
  private static final long LOOK_AGAIN_MS = 100L;
  private static final String SETTING = "spark.locality.wait.";

  /** Spark tells of a stage just before it has its tasks, which takes at most so many looks. */
  private static final Integer LOOKS = Integer.valueOf(50);

  /** Spark reads the setting again at moments of which it does not tell. */
  private static final class Keeper extends TimerTask {
    private final WaitingTasks of;

    Keeper(WaitingTasks of) {
      this.of = of;
    }

    public void run() {
      try {
        if (!of.keep()) cancel();
      } catch (Throwable error) {
        cancel(); // and tasks wait as all do
      }
    }
  }

  private final TaskSchedulerImpl scheduler;
  private final SparkConf conf;
  private final Map readers = new HashMap(); // running stage that reads sources -> looks left
  private final Timer timer = new Timer("balancedstream-waiting-tasks", true);
  private Keeper keeper; // null while no stage reads
  private long readersWaitMs = AS_ALL;
  private boolean isWarming;

  public WaitingTasks(TaskSchedulerImpl scheduler, SparkConf conf) {
    this.scheduler = scheduler;
    this.conf = conf;
  }

  /** Has tasks of running stages wait as long as the setting says now. */
  public synchronized void reconsider() {
    follow(true, true);
  }

  /** How long tasks that read sources wait for an executor; -1 if as long as all do. */
  public synchronized void setReadersWait(long waitMs) {
    readersWaitMs = waitMs;
    follow(false, true);
  }

  /** Whether executors are being warmed up. */
  public synchronized void setWarming(boolean wanted) {
    if (isWarming == wanted) return;
    isWarming = wanted;
    follow(false, true);
  }

  /** All tasks wait as the setting says, for good. */
  public synchronized void close() {
    timer.cancel();
    isWarming = false;
    readersWaitMs = AS_ALL;
    follow(true, true);
    readers.clear();
  }

  public synchronized void submitStage(SparkListenerStageSubmitted e) {
    if (e.properties() == null || e.properties().getProperty("sql.streaming.queryId") == null) return;
    if (!e.stageInfo().parentIds().isEmpty()) return;
    for (Object each : ScalaCollections.asJava(e.stageInfo().rddInfos())) {
      // A single partition may be read and kept in one stage.
      if (((RDDInfo) each).name().startsWith("StateStore")) return;
    }
    readers.put(Integer.valueOf(e.stageInfo().stageId()), LOOKS);
    if (keeper != null) return;
    keeper = new Keeper(this);
    timer.schedule(keeper, 0L, LOOK_AGAIN_MS);
  }

  public synchronized void completeStage(int id) {
    readers.remove(Integer.valueOf(id));
  }

  /** Returns whether to look again. */
  private synchronized boolean keep() {
    follow(false, false);
    if (!readers.isEmpty()) return true;
    keeper = null;
    return false;
  }

  private void follow(boolean all, boolean readsAgain) {
    Map found = new HashMap();
    synchronized (scheduler) { // as Spark does, whose `TaskSetManager` is for one thread
      Iterator it = ScalaCollections.asJava(scheduler.rootPool().getSortedTaskSetQueue()).iterator();
      while (it.hasNext()) {
        TaskSetManager tasks = (TaskSetManager) it.next();
        Integer stage = Integer.valueOf(tasks.taskSet().stageId());
        boolean reads = readers.containsKey(stage);
        if (all || reads && readsAgain) tasks.recomputeLocality();
        if (reads) {
          shorten(tasks);
          found.put(stage, stage);
        }
      }
    }
    for (Object stage : new ArrayList(readers.keySet())) {
      // One that was seen has ended; Spark may have dropped the event of that.
      int left = found.containsKey(stage) ? 1 : ((Integer) readers.get(stage)).intValue() - 1;
      if (left > 0) readers.put(stage, Integer.valueOf(left));
      else readers.remove(stage);
    }
  }

  private void shorten(TaskSetManager tasks) {
    Object[] levels = (Object[]) tasks.myLocalityLevels();
    long[] waits = new long[levels.length];
    boolean differs = false;
    for (int i = 0; i < waits.length; i++) {
      long wait = tasks.localityWaits()[i];
      waits[i] = choose(levels[i].toString(), wait);
      differs |= waits[i] != wait;
    }
    if (differs) tasks.localityWaits_$eq(waits);
  }

  private long choose(String level, long before) {
    if (level.equals("PROCESS_LOCAL")) {
      if (isWarming) return 0L;
      return readersWaitMs == AS_ALL ? before : Math.min(before, readersWaitMs);
    }
    boolean isNode = level.equals("NODE_LOCAL");
    if (!isWarming || !isNode && !level.equals("RACK_LOCAL")) return before;
    return conf.contains(SETTING + (isNode ? "node" : "rack")) ? before : 0L; // the user's own stays
  }
}
