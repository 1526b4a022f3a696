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

  /** How a query is triggered: `micro-batch`, `real-time` or `continuous`. */
  public static String kindOf(Object execution) {
    try {
      String trigger = call(execution, "trigger").getClass().getSimpleName();
      if (trigger.equals("RealTimeTrigger")) return "real-time";
      return trigger.equals("ContinuousTrigger") ? "continuous" : "micro-batch";
    } catch (Exception e) {
      return "micro-batch";
    }
  }

  /** Whether all tasks of a query run at once, for as long as a batch or the query lasts. */
  public static boolean holdsSlots(Object execution) {
    return !kindOf(execution).equals("micro-batch");
  }

  /** Whether a query in Real-Time Mode runs. */
  public boolean hasRealTime() {
    for (Object each : executions.values()) {
      if (kindOf(each).equals("real-time")) return true;
    }
    return false;
  }

  /** A query's name; null if it has none. */
  public static String nameOf(Object execution) {
    try {
      return (String) call(execution, "name");
    } catch (Exception e) {
      throw new IllegalStateException(e);
    }
  }

  /** A query's id, which all of its runs have. */
  public static String idOf(Object execution) {
    try {
      return call(execution, "id").toString();
    } catch (Exception e) {
      throw new IllegalStateException(e);
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
