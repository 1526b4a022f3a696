package io.balancedstream;

import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.connector.read.streaming.CompositeReadLimit;
import org.apache.spark.sql.connector.read.streaming.ReadAllAvailable;
import org.apache.spark.sql.connector.read.streaming.ReadLimit;
import org.apache.spark.sql.connector.read.streaming.ReadMaxFiles;
import org.apache.spark.sql.connector.read.streaming.ReadMaxRows;
import org.apache.spark.sql.connector.read.streaming.ReadMinRows;
import org.apache.spark.sql.connector.read.streaming.SupportsAdmissionControl;
import scala.Option;

/**
 * Bounds what the next batches of a running query read.
 *
 * <p>Spark keeps the limit of each source in `StreamExecution.uniqueSources`, a volatile reference to an
 * immutable map, which `MicroBatchExecution.constructNextBatch` reads once a batch. A new map there holds
 * from the next batch that is planned. What a batch reads is in the offset log before it runs, as always:
 * a bound decides where batches are cut, and nothing else.
 *
 * <p>Most sources throw on a limit of a type that they do not know, and that ends the query. So the
 * driver decides which source gets a limit of which type (`sources/limits.py`), by its class.
 */
public final class Admission {
  /** So many batches end with a bound that nobody renews: who set it may be gone. */
  private static final int MAX_BATCHES = 3;

  private static final String POLICY = "spark.sql.streaming.multipleWatermarkPolicy";

  private static final class Bound {
    Object execution;
    Object own; // `uniqueSources` as it was
    Object ours;
    int batches; // that ended since it was renewed
  }

  private static final class Change {
    long atMs;
    Double rows; // null: the user's own limits hold again
  }

  private final RunningQueries queries;
  private final Map bounds = new HashMap();  // run id -> Bound
  private final Map changes = new HashMap(); // run id -> List of Change, since its last batch began

  public Admission(RunningQueries queries) {
    this.queries = queries;
  }

  /**
   * Whether a query's batches begin at the ticks of a clock, how it joins watermarks (null if it does
   * not say), and its sources in the order in which `bound` wants their limits, with the limits of
   * the user: as [type, number] each, or [type, its JSON] of a source in Python.
   */
  public synchronized String describe(String runId) throws Exception {
    Object execution = queries.findRun(runId);
    if (execution == null) return "null";
    Bound bound = (Bound) bounds.get(runId);
    scala.collection.Map limits =
        (scala.collection.Map) (bound == null ? limitsOf(execution) : bound.own);
    StringBuilder json = new StringBuilder("{\"is_timed\":")
        .append(isPlain(execution) && RunningQueries.isTimed(execution))
        .append(",\"watermarks\":").append(StatefulOperators.quote(policyOf(execution)))
        .append(",\"sources\":[");
    boolean isFirst = true;
    for (Object source : Sources.list(execution)) {
      Option limit = limits.get(source);
      if (!isFirst) json.append(',');
      isFirst = false;
      json.append("{\"kind\":").append(StatefulOperators.quote(source.getClass().getName()))
          .append(",\"is_limited\":").append(source instanceof SupportsAdmissionControl)
          .append(",\"latest_first\":").append(readsLatestFirst(source))
          .append(",\"own\":").append(limit.isEmpty() ? "null" : toJson((ReadLimit) limit.get()))
          .append('}');
    }
    return json.append("]}").toString();
  }

  /**
   * Bounds the next batch that is planned, and those after it, until it is renewed. `limits` has one
   * a source, comma-separated: a unit and a number such as `rows:500`, or "" for the user's own. A
   * limit of the user stays the upper one. `rows` is what all of them let in. False if the query has
   * ended, or has planned nothing yet.
   */
  public synchronized boolean bound(String runId, String limits, double rows) throws Exception {
    Object execution = queries.findRun(runId);
    if (execution == null) return false;
    Bound bound = (Bound) bounds.get(runId);
    if (bound == null) {
      bound = new Bound();
      bound.execution = execution;
      bound.own = limitsOf(execution);
    }
    List sources = Sources.list(execution);
    String[] wanted = limits.split(",", -1);
    if (wanted.length != sources.size()) return false;
    scala.collection.immutable.Map next = (scala.collection.immutable.Map) bound.own;
    for (int i = 0; i < wanted.length; i++) {
      Option own = ((scala.collection.Map) bound.own).get(sources.get(i));
      if (own.isEmpty()) return false;
      if (wanted[i].isEmpty()) continue;
      int colon = wanted[i].indexOf(':');
      long value = Math.max(1L, Long.parseLong(wanted[i].substring(colon + 1)));
      ReadLimit limit = narrow((ReadLimit) own.get(), wanted[i].substring(0, colon), value);
      next = (scala.collection.immutable.Map) next.updated(sources.get(i), limit);
    }
    RunningQueries.set(execution, "uniqueSources", next);
    bound.ours = next;
    bound.batches = 0;
    bounds.put(runId, bound);
    note(runId, Double.valueOf(rows));
    return true;
  }

  /**
   * The rows to which a batch was bounded when it was planned, between two times, as JSON; null if the
   * user's own limits alone may have held. Of bounds that changed between them, the highest: each may
   * have held.
   */
  public synchronized String rowsOf(String runId, long beganMs, long plannedMs) {
    List known = (List) changes.get(runId);
    // Before the first change that is known, no bound was set.
    if (known == null || ((Change) known.get(0)).atMs > beganMs) return "null";
    Double highest = null;
    for (int i = 0; i < known.size(); i++) {
      Change change = (Change) known.get(i);
      boolean isOld = i + 1 < known.size() && ((Change) known.get(i + 1)).atMs <= beganMs;
      if (isOld || change.atMs > plannedMs) continue;
      if (change.rows == null) return "null";
      if (highest == null || change.rows.compareTo(highest) > 0) highest = change.rows;
    }
    return String.valueOf(highest);
  }

  private void note(String runId, Double rows) {
    List known = (List) changes.get(runId);
    if (known == null) {
      known = new ArrayList();
      changes.put(runId, known);
    }
    Change change = new Change();
    change.atMs = System.currentTimeMillis();
    change.rows = rows;
    known.add(change);
  }

  /** The folders of which a bound of ours alone limits what a batch reads. */
  public synchronized List listFolders(String runId) throws Exception {
    List found = new ArrayList();
    Bound bound = (Bound) bounds.get(runId);
    if (bound == null) return found;
    for (Object source : Sources.list(bound.execution)) {
      if (!FolderFiles.isFolder(source)) continue;
      Option own = ((scala.collection.Map) bound.own).get(source);
      if (!own.isEmpty() && own.get() instanceof ReadAllAvailable) found.add(source);
    }
    return found;
  }

  /** The user's own limits hold again from the next batch on that is planned. */
  public synchronized void giveBack(String runId) throws Exception {
    Bound bound = (Bound) bounds.remove(runId);
    if (bound != null) note(runId, null);
    // Where something else is in force, somebody else has set it.
    if (bound != null && limitsOf(bound.execution) == bound.ours) {
      RunningQueries.set(bound.execution, "uniqueSources", bound.own);
    }
  }

  /** A batch has ended; a bound that was not renewed for some of them is given back. */
  public synchronized void endBatch(String runId, long beganMs) throws Exception {
    List known = (List) changes.get(runId);
    while (known != null && known.size() > 1 && ((Change) known.get(1)).atMs <= beganMs) {
      known.remove(0);
    }
    Bound bound = (Bound) bounds.get(runId);
    if (bound != null && ++bound.batches >= MAX_BATCHES) giveBack(runId);
  }

  /** Forgets a run that ended: the next one begins with the user's limits. */
  public synchronized void endRun(String runId) {
    bounds.remove(runId);
    changes.remove(runId);
  }

  /** The user's own limits hold again everywhere. */
  public synchronized void close() {
    for (Object runId : new ArrayList(bounds.keySet())) {
      try {
        giveBack((String) runId);
      } catch (Exception e) {
        // The query ends just now.
      }
    }
  }

  private static Object limitsOf(Object execution) throws Exception {
    return RunningQueries.call(execution, "uniqueSources");
  }

  /** With asynchronous progress, offsets of some batches are not logged: a batch may be cut anew. */
  private static boolean isPlain(Object execution) {
    return execution.getClass().getSimpleName().equals("MicroBatchExecution");
  }

  /** As the checkpoint has it, which overrules the session. */
  private static String policyOf(Object execution) {
    try {
      Object metadata;
      try {
        metadata = RunningQueries.call(execution, "offsetSeqMetadata");
      } catch (NoSuchMethodException e) { // since Spark 4.0
        Object context = RunningQueries.call(execution, "getLatestExecutionContext");
        metadata = RunningQueries.call(context, "offsetSeqMetadata");
      }
      Option policy =
          ((scala.collection.Map) RunningQueries.call(metadata, "conf")).get(POLICY);
      return policy.isEmpty() ? null : (String) policy.get();
    } catch (Exception e) {
      return null;
    }
  }

  private static boolean readsLatestFirst(Object source) throws Exception {
    if (!FolderFiles.isFolder(source)) return false;
    Object options = RunningQueries.call(source, "sourceOptions");
    return ((Boolean) RunningQueries.call(options, "latestFirst")).booleanValue();
  }

  private static ReadLimit[] partsOf(ReadLimit limit) {
    if (limit instanceof CompositeReadLimit) return ((CompositeReadLimit) limit).getReadLimits();
    return limit instanceof ReadAllAvailable ? new ReadLimit[0] : new ReadLimit[] {limit};
  }

  private static String toJson(ReadLimit limit) throws Exception {
    ReadLimit[] parts = partsOf(limit);
    StringBuilder json = new StringBuilder("[");
    for (int i = 0; i < parts.length; i++) {
      String name = parts[i].getClass().getName();
      String value = "null";
      if (parts[i] instanceof ReadMaxRows) {
        value = String.valueOf(((ReadMaxRows) parts[i]).maxRows());
      } else if (parts[i] instanceof ReadMinRows) {
        value = String.valueOf(((ReadMinRows) parts[i]).minRows());
      } else if (parts[i] instanceof ReadMaxFiles) {
        value = String.valueOf(((ReadMaxFiles) parts[i]).maxFiles());
      } else if (isMaxBytes(parts[i])) {
        value = String.valueOf(RunningQueries.call(parts[i], "maxBytes"));
      } else if (name.endsWith(".PythonStreamingSourceReadLimit")) {
        value = StatefulOperators.quote(String.valueOf(RunningQueries.call(parts[i], "json")));
      }
      json.append(i > 0 ? ",[" : "[").append(StatefulOperators.quote(name)).append(',')
          .append(value).append(']');
    }
    return json.append(']').toString();
  }

  /** The user's limit, and a bound of ours in a unit: the lower of both, beside the user's others. */
  private static ReadLimit narrow(ReadLimit own, String unit, long value) throws Exception {
    if (unit.equals("python")) {
      return (ReadLimit) own.getClass().getConstructors()[0].newInstance(
          new Object[] {"{\"max_rows\": " + value + ", \"_type\": \"ReadMaxRows\"}"});
    }
    long most = value;
    List kept = new ArrayList();
    ReadLimit[] parts = partsOf(own);
    for (int i = 0; i < parts.length; i++) {
      if (unit.equals("rows") && parts[i] instanceof ReadMaxRows) {
        most = Math.min(most, ((ReadMaxRows) parts[i]).maxRows());
      } else if (unit.equals("files") && parts[i] instanceof ReadMaxFiles) {
        most = Math.min(most, ((ReadMaxFiles) parts[i]).maxFiles());
      } else if (unit.equals("bytes") && isMaxBytes(parts[i])) {
        most = Math.min(most, ((Long) RunningQueries.call(parts[i], "maxBytes")).longValue());
      } else {
        kept.add(parts[i]);
      }
    }
    ReadLimit ours;
    if (unit.equals("rows")) {
      ours = make("maxRows", Long.valueOf(most));
    } else if (unit.equals("files")) {
      ours = make("maxFiles", Integer.valueOf((int) Math.min((long) Integer.MAX_VALUE, most)));
    } else {
      ours = make("maxBytes", Long.valueOf(most));
    }
    if (kept.isEmpty()) return ours;
    kept.add(ours);
    return make("compositeLimit", kept.toArray(new ReadLimit[0]));
  }

  private static boolean isMaxBytes(ReadLimit limit) { // since Spark 4.0
    return limit.getClass().getName().equals(
        "org.apache.spark.sql.connector.read.streaming.ReadMaxBytes");
  }

  /** By reflection: Janino calls no static method of an interface. */
  private static ReadLimit make(String name, Object value) throws Exception {
    Method[] methods = ReadLimit.class.getMethods();
    for (int i = 0; i < methods.length; i++) {
      if (methods[i].getName().equals(name)) {
        return (ReadLimit) methods[i].invoke(null, new Object[] {value});
      }
    }
    throw new NoSuchMethodException(name);
  }
}
