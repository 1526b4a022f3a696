package io.balancedstream;

import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.execution.streaming.runtime.StreamingQueryWrapper;
import org.apache.spark.sql.streaming.StreamingQueryListener;

/**
 * Tells every task of a streaming query its query's label, run and checkpoint, by local properties.
 *
 * <p>Spark calls a listener of the session on the query's own thread before the first batch is
 * planned, and each job takes the thread's local properties along.
 */
public final class CheckpointNamer extends StreamingQueryListener {
  private final SparkSession session;
  private final String checkpointProperty;
  private final String queryProperty;
  private final String runProperty;

  public CheckpointNamer(
      SparkSession session, String checkpointProperty, String queryProperty, String runProperty) {
    this.session = session;
    this.checkpointProperty = checkpointProperty;
    this.queryProperty = queryProperty;
    this.runProperty = runProperty;
  }

  public void onQueryStarted(StreamingQueryListener.QueryStartedEvent event) {
    Object query = session.streams().get(event.id());
    String root = ((StreamingQueryWrapper) query).streamingQuery().resolvedCheckpointRoot();
    String label = event.name() == null ? event.id().toString() : event.name();
    session.sparkContext().setLocalProperty(checkpointProperty, root);
    session.sparkContext().setLocalProperty(queryProperty, label);
    session.sparkContext().setLocalProperty(runProperty, event.runId().toString());
  }

  public void onQueryProgress(StreamingQueryListener.QueryProgressEvent event) {}

  public void onQueryTerminated(StreamingQueryListener.QueryTerminatedEvent event) {}
}
