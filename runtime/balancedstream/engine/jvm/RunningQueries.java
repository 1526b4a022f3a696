package io.balancedstream;

import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.UUID;

/**
 * The queries that run, and what their progress does not say, such as the trigger. Read by reflection:
 * another version of Spark may not have it, and then it is unknown.
 */
public final class RunningQueries {
  private final Map executions; // query id -> StreamExecution, of all sessions

  public RunningQueries(Map activeStreamingQueries) {
    this.executions = activeStreamingQueries;
  }

  /** The interval of a query's trigger in milliseconds, as JSON; null if it has none. */
  public String triggerMs(String queryId) {
    return triggerMs(find(queryId));
  }

  private static String triggerMs(Object execution) {
    try {
      Object trigger = call(execution, "trigger");
      if (!trigger.getClass().getSimpleName().equals("ProcessingTimeTrigger")) return "null";
      long intervalMs = ((Long) call(trigger, "intervalMs")).longValue();
      return intervalMs > 0L ? String.valueOf(intervalMs) : "null";
    } catch (Exception e) {
      return "null";
    }
  }

  /** The query's `StreamExecution`; null if it does not run. */
  public Object find(String queryId) {
    return executions.get(UUID.fromString(queryId));
  }

  /** The `StreamExecution` of a run; null if it has ended. */
  public Object findRun(String runId) {
    for (Object execution : executions.values()) {
      if (runId.equals(runOf(execution))) return execution;
    }
    return null;
  }

  /** Of all queries that run now, their `StreamExecution`. */
  public List list() {
    return new ArrayList(executions.values());
  }

  /** The id of a run. */
  public static String runOf(Object execution) {
    try {
      return call(execution, "runId").toString();
    } catch (Exception e) {
      throw new IllegalStateException(e);
    }
  }

  /** Whether a query has a batch at each tick of a clock: of all triggers only one is so. */
  public static boolean isTimed(Object execution) {
    return !triggerMs(execution).equals("null");
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

  /** Sets a variable of Scala's. */
  public static void set(Object target, String name, Object value) throws Exception {
    Class owner = target.getClass();
    while (owner != null) {
      Method[] methods = owner.getDeclaredMethods();
      for (int i = 0; i < methods.length; i++) {
        if (methods[i].getName().equals(name + "_$eq")) {
          methods[i].setAccessible(true);
          methods[i].invoke(target, new Object[] {value});
          return;
        }
      }
      owner = owner.getSuperclass();
    }
    throw new NoSuchMethodException(name);
  }

  /** What went wrong, in a line; the cause of what reflection or a future wraps. */
  public static String describe(Throwable error) {
    Throwable cause = error;
    while (cause.getCause() != null
        && (cause instanceof java.lang.reflect.InvocationTargetException
            || cause instanceof java.util.concurrent.ExecutionException)) {
      cause = cause.getCause();
    }
    return String.valueOf(cause).split("\n", 2)[0];
  }
}
