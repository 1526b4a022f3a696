package io.balancedstream;

import java.util.HashSet;
import java.util.Iterator;
import java.util.Set;
import java.util.Timer;
import java.util.TimerTask;
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
  private static final long LOOK_AGAIN_MS = 20L;
  private static final int LOOKS = 500;

  /** Spark tells of a stage just before it has its tasks. */
  private static final class Look extends TimerTask {
    private final WaitingTasks of;
    private final Integer stage;
    private int left = LOOKS; // Spark may drop the event of its end

    Look(WaitingTasks of, Integer stage) {
      this.of = of;
      this.stage = stage;
    }

    public void run() {
      if (of.followStage(stage) || --left == 0) cancel();
    }
  }

  private final TaskSchedulerImpl scheduler;
  private final Set readers = new HashSet(); // ids of running stages that read sources only
  private long readersWaitMs = AS_ALL;
  private boolean isWarming;
  private final Timer timer = new Timer("balancedstream-waiting-tasks", true);

  public WaitingTasks(TaskSchedulerImpl scheduler) {
    this.scheduler = scheduler;
  }

  /** Has tasks of running stages wait as long as the setting says now. */
  public synchronized void reconsider() {
    follow(true);
  }

  /** How long tasks that read sources wait for an executor; -1 if as long as all do. */
  public synchronized void setReadersWait(long waitMs) {
    readersWaitMs = waitMs;
    follow(true);
  }

  /** Whether executors are being warmed up. */
  public synchronized void setWarming(boolean wanted) {
    if (isWarming == wanted) return;
    isWarming = wanted;
    follow(true);
  }

  /** All tasks wait as the setting says, for good. */
  public synchronized void close() {
    timer.cancel();
    readers.clear();
    readersWaitMs = AS_ALL;
    follow(true);
  }

  public synchronized void submitStage(SparkListenerStageSubmitted e) {
    if (e.properties() == null || e.properties().getProperty("sql.streaming.queryId") == null) return;
    if (!e.stageInfo().parentIds().isEmpty()) return;
    for (Object each : ScalaCollections.asJava(e.stageInfo().rddInfos())) {
      // A single partition may be read and kept in one stage.
      if (((RDDInfo) each).name().startsWith("StateStore")) return;
    }
    if (readersWaitMs == AS_ALL) return;
    Integer stage = Integer.valueOf(e.stageInfo().stageId());
    readers.add(stage);
    timer.schedule(new Look(this, stage), 0L, LOOK_AGAIN_MS);
  }

  public synchronized void completeStage(int id) {
    readers.remove(Integer.valueOf(id));
  }

  /** An executor joined or left, so Spark has read the setting again for all tasks. */
  public synchronized void noteExecutors() {
    follow(false);
  }

  /** Whether a stage need not be looked at again: it has its tasks, or has ended. */
  private synchronized boolean followStage(Integer stage) {
    return !readers.contains(stage) || follow(false).contains(stage);
  }

  /** Returns the stages that have their tasks. */
  private Set follow(boolean readsAgain) {
    Set found = new HashSet();
    if (!readsAgain && readers.isEmpty()) return found;
    synchronized (scheduler) { // as Spark does, whose `TaskSetManager` is for one thread
      Iterator it = ScalaCollections.asJava(scheduler.rootPool().getSortedTaskSetQueue()).iterator();
      while (it.hasNext()) {
        TaskSetManager tasks = (TaskSetManager) it.next();
        Integer stage = Integer.valueOf(tasks.taskSet().stageId());
        boolean reads = readers.contains(stage);
        if (readsAgain || reads) tasks.recomputeLocality();
        if (reads && readersWaitMs != AS_ALL) shorten(tasks);
        found.add(stage);
      }
    }
    return found;
  }

  private void shorten(TaskSetManager tasks) {
    Object[] levels = (Object[]) tasks.myLocalityLevels();
    long[] waits = new long[levels.length];
    for (int i = 0; i < waits.length; i++) {
      boolean isExecutor = levels[i].toString().equals("PROCESS_LOCAL");
      long before = isExecutor ? readersWaitMs : tasks.localityWaits()[i];
      waits[i] = isWarming ? 0L : before;
    }
    tasks.localityWaits_$eq(waits);
  }
}
