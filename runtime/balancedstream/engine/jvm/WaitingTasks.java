package io.balancedstream;

import org.apache.spark.scheduler.TaskSchedulerImpl;
import org.apache.spark.scheduler.TaskSetManager;

/**
 * Tasks that wait for the executor with their state.
 *
 * <p>Spark reads how long they may wait for each stage, and for running ones when an executor joins or
 * is lost: before anybody hears of it who could set another wait.
 */
public final class WaitingTasks {
  private final TaskSchedulerImpl scheduler;

  public WaitingTasks(TaskSchedulerImpl scheduler) {
    this.scheduler = scheduler;
  }

  /** Has tasks of running stages wait as long as the setting says now. */
  public void reconsider() {
    synchronized (scheduler) { // as Spark does, whose `TaskSetManager` is for one thread
      for (Object each : ScalaCollections.asJava(scheduler.rootPool().getSortedTaskSetQueue())) {
        ((TaskSetManager) each).recomputeLocality();
      }
    }
  }
}
