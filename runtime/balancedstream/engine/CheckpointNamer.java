package io.balancedstream;

import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.execution.streaming.runtime.StreamingQueryWrapper;
import org.apache.spark.sql.streaming.StreamingQueryListener;

/**
 * Tells every task of a streaming query where the query's checkpoint is, by a local property.
 *
 * <p>Spark calls a listener of the session on the query's own thread before the first batch is
 * planned, and each job takes the thread's local properties along.
 */
public final class CheckpointNamer extends StreamingQueryListener {
  private final SparkSession session;
  private final String property;

  public CheckpointNamer(SparkSession session, String property) {
    this.session = session;
    this.property = property;
  }

  public void onQueryStarted(StreamingQueryListener.QueryStartedEvent event) {
    Object query = session.streams().get(event.id());
    String root = ((StreamingQueryWrapper) query).streamingQuery().resolvedCheckpointRoot();
    session.sparkContext().setLocalProperty(property, root);
  }

  public void onQueryProgress(StreamingQueryListener.QueryProgressEvent event) {}

  public void onQueryTerminated(StreamingQueryListener.QueryTerminatedEvent event) {}
}
