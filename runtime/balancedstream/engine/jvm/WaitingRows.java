package io.balancedstream;

import java.util.ArrayList;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;

/**
 * Asks the sources of running queries for what has come, where nothing else was told of a query for a
 * second. One thread asks one query after the other; nobody waits for it. A source that answers slowly,
 * or not, is asked less often.
 */
public final class WaitingRows implements Runnable {
  private static final long EVERY_MS = 1000L;
  private static final long SELDOM_MS = 60000L;
  private static final int TIMEOUT_MS = 5000;
  private static final long LOOK_MS = 200L;

  /** A source is asked for at most a twentieth of the time. */
  private static final long SHARE = 20L;

  private static final class Run {
    volatile long dueMs;
    long restMs = EVERY_MS;
    final Set told = new HashSet(); // causes
  }

  private final RunningQueries queries;
  private final Sources sources;
  private final EventQueue events;
  private final Map runs = new ConcurrentHashMap(); // run id -> Run
  private final Map folders = new ConcurrentHashMap(); // to be listed, each to itself
  private Thread thread; // null until somebody wants to know
  private volatile boolean watches;
  private volatile boolean closed;

  public WaitingRows(RunningQueries queries, Sources sources, EventQueue events) {
    this.queries = queries;
    this.sources = sources;
    this.events = events;
  }

  /** Whether somebody wants to know. The thread ends with `close`, and keeps no JVM alive. */
  public synchronized void watch(boolean wanted) {
    watches = wanted;
    if (!wanted || thread != null) return;
    thread = new Thread(this, "balancedstream-sources");
    thread.setDaemon(true);
    thread.start();
  }

  public boolean watches() {
    return watches;
  }

  public void close() {
    closed = true;
  }

  /** Something was told of a query: there is no need to ask for a while. */
  public void put(String runId) {
    Run run = (Run) runs.get(runId);
    if (run == null) {
      run = new Run();
      runs.put(runId, run);
    }
    run.dueMs = System.currentTimeMillis() + run.restMs;
  }

  /** A run has ended. */
  public void end(String runId) {
    runs.remove(runId);
  }

  /** Has a source of files list its folder for the next batch, soon. */
  public void listAgain(Object folder) {
    folders.put(folder, folder);
  }

  public void run() {
    while (!closed) {
      try {
        Thread.sleep(LOOK_MS);
        listFolders();
        if (!watches) continue;
        for (Object execution : queries.list()) {
          Run run = (Run) runs.get(RunningQueries.runOf(execution));
          if (run == null || System.currentTimeMillis() < run.dueMs) continue;
          if (RunningQueries.isTimed(execution)) ask(execution, run);
        }
      } catch (InterruptedException e) {
        return;
      } catch (Throwable e) {
        // A query may be half begun, or half ended; it is looked at again.
      }
    }
  }

  private void listFolders() {
    for (Object folder : new ArrayList(folders.keySet())) {
      folders.remove(folder);
      try {
        sources.listAgain(folder);
      } catch (Exception e) {
        // The source goes on with the list that it has.
      }
    }
  }

  private void ask(Object execution, Run run) {
    long beganMs = System.currentTimeMillis();
    String runId = RunningQueries.runOf(execution);
    try {
      String json = sources.ask(execution, TIMEOUT_MS);
      long tookMs = System.currentTimeMillis() - beganMs;
      run.restMs = Math.min(SELDOM_MS, Math.max(EVERY_MS, SHARE * tookMs));
      if (json != null && !closed) {
        events.addMeasurement("{\"event\":\"rows_waiting\",\"run\":" + quote(runId) + ",\"at_ms\":"
            + beganMs + ",\"sources\":" + json + "}");
      }
    } catch (Throwable e) {
      run.restMs = Math.min(SELDOM_MS, 2L * run.restMs);
      String cause = RunningQueries.describe(e);
      // Messages may have a time or an address in them.
      if (run.told.add(cause.split(":", 2)[0])) {
        events.addMeasurement("{\"event\":\"rows_unknown\",\"run\":" + quote(runId) + ",\"cause\":"
            + quote(cause) + "}");
      }
    }
    run.dueMs = System.currentTimeMillis() + run.restMs;
  }

  private static String quote(String text) {
    return StatefulOperators.quote(text);
  }
}
