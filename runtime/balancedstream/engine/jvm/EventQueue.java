package io.balancedstream;

import java.util.ArrayDeque;
import java.util.Iterator;

/**
 * The events that wait for the driver's Python, as JSON. It is bounded, because Python may be slower
 * than the batches: the oldest batches are dropped then, and an event in their place says how many.
 * Events that change what exists (queries, executors) are never dropped; they are few and small.
 */
public final class EventQueue {
  private static final class Waiting {
    String json;
    boolean isDroppable;
  }

  private final long maxChars;
  private final ArrayDeque events = new ArrayDeque(); // of Waiting
  private long chars;
  private long dropped; // since Python was told last
  private boolean closed;

  public EventQueue(long maxChars) {
    this.maxChars = maxChars;
  }

  /** Adds an event that may be dropped: what a batch or a task did. The newest one is kept. */
  public synchronized void addMeasurement(String json) {
    add(json, true);
    Iterator oldest = events.iterator();
    while (chars > maxChars && oldest.hasNext()) {
      Waiting waiting = (Waiting) oldest.next();
      if (!waiting.isDroppable || waiting.json == json) continue;
      oldest.remove();
      chars -= waiting.json.length();
      dropped++;
    }
  }

  /** Adds an event that is never dropped: a query or an executor came or went. */
  public synchronized void addChange(String json) {
    add(json, false);
  }

  private void add(String json, boolean isDroppable) {
    if (closed) return;
    Waiting waiting = new Waiting();
    waiting.json = json;
    waiting.isDroppable = isDroppable;
    events.add(waiting);
    chars += json.length();
    notifyAll();
  }

  /** The next event; null if none came in time. */
  public synchronized String next(long timeoutMs) throws InterruptedException {
    long endMs = System.currentTimeMillis() + timeoutMs;
    while (events.isEmpty()) {
      long leftMs = endMs - System.currentTimeMillis();
      if (leftMs <= 0L) return null;
      wait(leftMs);
    }
    if (dropped > 0L) {
      String lost = "{\"event\":\"events_dropped\",\"count\":" + dropped + "}";
      dropped = 0L;
      return lost;
    }
    Waiting waiting = (Waiting) events.remove();
    chars -= waiting.json.length();
    return waiting.json;
  }

  /** Forgets what waits, and takes nothing in any more. */
  public synchronized void close() {
    closed = true;
    events.clear();
    chars = 0L;
    dropped = 0L;
  }
}
