package io.balancedstream;

import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import scala.collection.Seq;

/**
 * What a query's progress does not say: its trigger, and the files that wait at its file sources
 * (`FileStreamSource`). Read by reflection: another version of Spark may not have it, and then it
 * is unknown.
 */
public final class RunningQueries {
  private final Map executions; // query id -> StreamExecution, of all sessions

  public RunningQueries(Map activeStreamingQueries) {
    this.executions = activeStreamingQueries;
  }

  /** The interval of a query's trigger in milliseconds, as JSON; null if it has none. */
  public String triggerMs(String queryId) {
    try {
      Object trigger = call(find(queryId), "trigger");
      if (!trigger.getClass().getSimpleName().equals("ProcessingTimeTrigger")) return "null";
      long intervalMs = ((Long) call(trigger, "intervalMs")).longValue();
      return intervalMs > 0L ? String.valueOf(intervalMs) : "null";
    } catch (Exception e) {
      return "null";
    }
  }

  /**
   * For each source, in the order of the progress: the JSON of the number of files that wait, of
   * those that were ever taken, and the offset up to which they were; null for other sources.
   */
  public List files(String queryId) {
    List found = new ArrayList();
    try {
      List sources = ScalaCollections.asJava((Seq) call(find(queryId), "sources"));
      // A source that a query reads twice is there twice, and once in the progress.
      for (Object each : new LinkedHashSet(sources)) found.add(filesOf(each));
    } catch (Exception e) {
      found.clear();
    }
    return found;
  }

  private Object find(String queryId) {
    return executions.get(UUID.fromString(queryId));
  }

  /** `[id, name]` of each query in Real-Time Mode that runs now, separated by commas. */
  public String listRealTime() {
    StringBuilder json = new StringBuilder();
    for (Object execution : executions.values()) {
      if (!isRealTime(execution)) continue;
      if (json.length() > 0) json.append(',');
      try {
        json.append("[\"").append(call(execution, "id")).append("\",")
            .append(StatefulOperators.quote((String) call(execution, "name"))).append(']');
      } catch (Exception e) {
        throw new IllegalStateException(e);
      }
    }
    return json.toString();
  }

  /**
   * Whether a query in Real-Time Mode runs. All tasks of its batch run at once, and Spark ends the
   * query if they do not find enough free slots at the start of a batch: it counts what runs, and
   * what waits, of every other job (`DAGScheduler.rejectUnadmittablePipelinedGroup`).
   */
  public boolean hasRealTime() {
    for (Object each : executions.values()) {
      if (isRealTime(each)) return true;
    }
    return false;
  }

  private static boolean isRealTime(Object execution) {
    try {
      return call(execution, "trigger").getClass().getSimpleName().equals("RealTimeTrigger");
    } catch (Exception e) {
      return false;
    }
  }

  private static String filesOf(Object source) throws Exception {
    if (!source.getClass().getSimpleName().equals("FileStreamSource")) return "null";
    while (true) {
      Object offset = call(source, "metadataLogCurrentOffset");
      Seq unread = (Seq) call(source, "unreadFiles"); // null if the last listing was read in full
      int waiting = unread == null ? 0 : unread.size();
      Object taken = call(call(source, "seenFiles"), "size");
      // The next batch may take its files meanwhile: all three must be of one moment.
      if (offset.equals(call(source, "metadataLogCurrentOffset"))) {
        return "[" + waiting + "," + taken + "," + offset + "]";
      }
    }
  }

  /** The result of a method without parameters; public, as other classes have other loaders. */
  public static Object call(Object target, String name) throws Exception {
    Class owner = target.getClass();
    while (owner != null) {
      Method[] methods = owner.getDeclaredMethods();
      for (int i = 0; i < methods.length; i++) {
        if (methods[i].getName().equals(name) && methods[i].getParameterTypes().length == 0) {
          methods[i].setAccessible(true);
          return methods[i].invoke(target, new Object[0]);
        }
      }
      owner = owner.getSuperclass();
    }
    throw new NoSuchMethodException(name);
  }
}
