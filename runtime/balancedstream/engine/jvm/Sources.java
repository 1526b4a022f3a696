package io.balancedstream;

import java.util.ArrayList;
import java.util.LinkedHashSet;
import java.util.List;
import org.apache.spark.sql.connector.read.streaming.Offset;
import scala.Option;
import scala.collection.Seq;

/**
 * What the sources of a query say of its batches: of one that is planned, what it reads and what waits
 * behind it; between two of them, what has come since. Offsets are quoted: a connector may write any
 * JSON. Read by reflection: another version of Spark may not have it.
 */
public final class Sources {
  private final RunningQueries queries;
  private final FolderFiles folders = new FolderFiles();

  public Sources(RunningQueries queries) {
    this.queries = queries;
  }

  /**
   * The sources of a query, each once, in the order of its progress and of its offset log; none before
   * the query has planned. A source that a query reads twice is there twice.
   */
  public static List list(Object execution) throws Exception {
    return new ArrayList(new LinkedHashSet(
        ScalaCollections.asJava((Seq) RunningQueries.call(execution, "sources"))));
  }

  /** For each source the JSON of its files (`FolderFiles.toJson`); null for other sources. */
  public List files(String queryId) {
    List found = new ArrayList();
    try {
      for (Object source : list(queries.find(queryId))) found.add(filesOf(source));
    } catch (Exception e) {
      found.clear();
    }
    return found;
  }

  /**
   * The JSON of each source in a batch that is planned: its offsets, as in a progress, its files, and the
   * files and bytes that the batch reads of it, where its scan counts them. Null if the batch is not
   * the one that Spark planned last.
   */
  public String planned(Object execution, long batch) throws Exception {
    Object plan = RunningQueries.call(execution, "lastExecution");
    if (plan == null || numberOf(plan) != batch) return null;
    List sources = list(execution);
    List scans = new ArrayList();
    collectScans(RunningQueries.call(plan, "executedPlan"), scans);
    Object available = RunningQueries.call(execution, "availableOffsets");
    Object latest = RunningQueries.call(execution, "latestOffsets");
    StringBuilder json = new StringBuilder("[");
    for (int i = 0; i < sources.size(); i++) {
      Object source = sources.get(i);
      String end = offset(available, source);
      String start = end;
      long[] scanned = null;
      for (Object scan : scans) {
        if (streamOf(scan, sources) != source) continue;
        if (scan.getClass().getSimpleName().equals("MicroBatchScanExec")) {
          start = json(RunningQueries.call(scan, "start"));
          end = json(RunningQueries.call(scan, "end"));
        } else {
          if (scanned == null) scanned = new long[2];
          scala.collection.Map metrics =
              (scala.collection.Map) RunningQueries.call(scan, "metrics");
          scanned[0] += read(metrics, "numFiles");
          scanned[1] += read(metrics, "filesSize");
        }
      }
      if (i > 0) json.append(',');
      append(json, source, start, end, offset(latest, source));
      json.append(",\"files\":").append(filesOf(source)).append(",\"scanned\":")
          .append(scanned == null ? "null" : "[" + scanned[0] + "," + scanned[1] + "]").append('}');
    }
    return json.append(']').toString();
  }

  /**
   * The JSON of each source between two batches, with the newest offsets of those that can be asked;
   * null if none can.
   */
  public String ask(Object execution, int timeoutMs) throws Exception {
    List sources = list(execution);
    boolean isAnswered = false;
    StringBuilder json = new StringBuilder("[");
    for (int i = 0; i < sources.size(); i++) {
      Object source = sources.get(i);
      String latest = null;
      if (KafkaTopics.isTopics(source)) {
        Option planned = find(RunningQueries.call(execution, "availableOffsets"), source);
        if (!planned.isEmpty()) latest = KafkaTopics.ends(source, planned.get(), timeoutMs);
      }
      isAnswered |= latest != null;
      if (i > 0) json.append(',');
      // Up to where batches read is looked up last: what is planned meanwhile does not wait.
      String end = offset(RunningQueries.call(execution, "availableOffsets"), source);
      append(json, source, null, end, latest);
      json.append(",\"files\":null,\"scanned\":null}");
    }
    return isAnswered ? json.append(']').toString() : null;
  }

  /** Has a source of files list its folder for the next batch (`FolderFiles.listAgain`). */
  public void listAgain(Object folder) throws Exception {
    folders.listAgain(folder);
  }

  private String filesOf(Object source) throws Exception {
    return FolderFiles.isFolder(source) ? folders.toJson(source) : "null";
  }

  private static void append(
      StringBuilder json, Object source, String start, String end, String latest) {
    json.append("{\"description\":").append(StatefulOperators.quote(String.valueOf(source)))
        .append(",\"start\":").append(StatefulOperators.quote(start))
        .append(",\"end\":").append(StatefulOperators.quote(end))
        .append(",\"latest\":").append(StatefulOperators.quote(latest))
        .append(",\"rows\":0");
  }

  private static long numberOf(Object plan) throws Exception {
    return ((Long) RunningQueries.call(plan, "currentBatchId")).longValue();
  }

  /** The leaves of a plan; adaptive execution hides those of a stage behind a leaf of its own. */
  private static void collectScans(Object plan, List scans) throws Exception {
    List leaves = ScalaCollections.asJava((Seq) RunningQueries.call(plan, "collectLeaves"));
    for (Object leaf : leaves) {
      String name = leaf.getClass().getSimpleName();
      if (name.equals("AdaptiveSparkPlanExec")) {
        collectScans(RunningQueries.call(leaf, "executedPlan"), scans);
      } else if (name.endsWith("QueryStageExec")) {
        collectScans(RunningQueries.call(leaf, "plan"), scans);
      } else if (name.endsWith("ScanExec")) {
        scans.add(leaf);
      }
    }
  }

  /** The source that a scan reads; null if it reads none. */
  private static Object streamOf(Object scan, List sources) throws Exception {
    try {
      Object stream = RunningQueries.call(scan, "stream");
      if (!(stream instanceof Option)) return stream;
      return ((Option) stream).isEmpty() ? null : ((Option) stream).get();
    } catch (NoSuchMethodException e) {
      // Before Spark 4.0 a scan of files does not say of which source; with one it is clear.
      Option logical = (Option) RunningQueries.call(scan, "logicalLink");
      boolean streams = !logical.isEmpty()
          && ((Boolean) RunningQueries.call(logical.get(), "isStreaming")).booleanValue();
      return streams && sources.size() == 1 ? sources.get(0) : null;
    }
  }

  private static long read(scala.collection.Map metrics, String name) throws Exception {
    Option metric = metrics.get(name);
    if (metric.isEmpty()) return 0L;
    return Math.max(0L, ((Number) RunningQueries.call(metric.get(), "value")).longValue());
  }

  private static Option find(Object progress, Object source) {
    return ((scala.collection.Map) progress).get(source);
  }

  private static String offset(Object progress, Object source) {
    Option found = find(progress, source);
    return found.isEmpty() ? null : json(found.get());
  }

  private static String json(Object offset) {
    return offset == null ? null : ((Offset) offset).json();
  }
}
