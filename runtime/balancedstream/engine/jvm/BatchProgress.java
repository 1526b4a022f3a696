package io.balancedstream;

import java.util.Iterator;
import java.util.List;
import org.apache.spark.sql.streaming.SourceProgress;
import org.apache.spark.sql.streaming.StateOperatorProgress;
import org.apache.spark.sql.streaming.StreamingQueryProgress;

/**
 * What is read of a batch's progress, as JSON. Offsets are quoted: a connector may write any JSON, and
 * what cannot be read of it must cost no more than the backlog of its source.
 */
public final class BatchProgress {
  /** `files` has the JSON of each source's files, in the order of the sources. */
  public static String toJson(StreamingQueryProgress progress, List files) {
    StringBuilder json = new StringBuilder();
    json.append("{\"id\":").append(quote(progress.id().toString()))
        .append(",\"name\":").append(quote(progress.name()))
        .append(",\"batchId\":").append(progress.batchId())
        .append(",\"timestamp\":").append(quote(progress.timestamp()))
        .append(",\"numInputRows\":").append(progress.numInputRows())
        .append(",\"durationMs\":{").append(StatefulOperators.joinEntries(progress.durationMs()))
        .append("},\"stateMetrics\":[");
    StateOperatorProgress[] operators = progress.stateOperators();
    for (int i = 0; i < operators.length; i++) {
      json.append(i > 0 ? ",[" : "[");
      Iterator names = operators[i].customMetrics().keySet().iterator();
      while (names.hasNext()) {
        json.append(quote((String) names.next()));
        if (names.hasNext()) json.append(',');
      }
      json.append(']');
    }
    json.append("],\"sources\":[");
    SourceProgress[] sources = progress.sources();
    for (int i = 0; i < sources.length; i++) {
      if (i > 0) json.append(',');
      json.append("{\"description\":").append(quote(sources[i].description()))
          .append(",\"start\":").append(quote(sources[i].startOffset()))
          .append(",\"end\":").append(quote(sources[i].endOffset()))
          .append(",\"latest\":").append(quote(sources[i].latestOffset()))
          .append(",\"rows\":").append(sources[i].numInputRows())
          .append(",\"files\":").append(i < files.size() ? files.get(i) : "null").append('}');
    }
    return json.append("]}").toString();
  }

  private static String quote(String text) {
    return StatefulOperators.quote(text);
  }
}
