package io.balancedstream;

import java.util.List;

/**
 * State that other executors load ahead of moves. `BatchListener` knows only this, because a
 * version of Spark may lack what `Preparations` needs.
 */
public interface Preparing {
  /** Instead of a partner. */
  int NONE = -1;

  /**
   * Has partitions of operators that share their tasks loaded on these executors ("" for none), to
   * run there from a batch on; gives up what was prepared of them before and is not wanted any more.
   * A partition and its partner move in the same batch, unless a load fails.
   */
  void prepare(
      String runId, long[] operators, String[] executors, int[] partners, long fromBatch);

  /** A partition's task has ended, and its state will not change in this batch. */
  void endTask(String runId, long batch, long operator, int partition);

  /** All tasks of the query's batch have ended, and placements are set now. */
  void endBatch(String runId);

  /** Whether a partition must not run on an executor yet, because the state is not there. */
  boolean holdsBack(String runId, long operator, int partition, String executor);

  /** The operator/partition of each that was given up after its target had taken over the state. */
  List takeGivenUp(String runId);

  /** A query in Real-Time Mode began, in whose way every other job is. */
  void makeRoom();

  /** An executor is gone. */
  void removeExecutor(String executor);

  /** A query ended. */
  void endRun(String runId);

  /** Nothing is wanted any more: gives up all preparations. */
  void close();

  /** Each preparation of a query as a JSON array, separated by commas. */
  String toJson(String runId);
}
