package io.balancedstream;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.nio.file.StandardCopyOption;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.streaming.StreamingRelationV2;
import org.apache.spark.sql.execution.streaming.runtime.StreamExecution;
import org.apache.spark.sql.execution.streaming.runtime.StreamingQueryWrapper;
import org.apache.spark.sql.streaming.StreamingQueryListener;

/**
 * Gives every task of a streaming query the query's name, run and checkpoint in local properties,
 * and the sources of a balanced query its checkpoint in a file.
 *
 * <p>Spark calls a listener of the session on the query's own thread before it plans the first
 * batch, and each job inherits the thread's local properties.
 */
public final class CheckpointNamer extends StreamingQueryListener {
  private final SparkSession session;
  private final String checkpointProperty;
  private final String queryNameProperty;
  private final String runProperty;
  private final String folderOption;
  private final String file;

  public CheckpointNamer(
      SparkSession session,
      String checkpointProperty,
      String queryNameProperty,
      String runProperty,
      String folderOption,
      String file) {
    this.session = session;
    this.checkpointProperty = checkpointProperty;
    this.queryNameProperty = queryNameProperty;
    this.runProperty = runProperty;
    this.folderOption = folderOption;
    this.file = file;
  }

  public void onQueryStarted(StreamingQueryListener.QueryStartedEvent event) {
    Object wrapper = session.streams().get(event.id());
    StreamExecution query = ((StreamingQueryWrapper) wrapper).streamingQuery();
    String root = query.resolvedCheckpointRoot();
    String label = event.name() == null ? event.id().toString() : event.name();
    session.sparkContext().setLocalProperty(checkpointProperty, root);
    session.sparkContext().setLocalProperty(queryNameProperty, label);
    session.sparkContext().setLocalProperty(runProperty, event.runId().toString());
    tellSources(query.analyzedPlan(), root, event.runId().toString());
  }

  /** Spark starts the sources after this call, so they can refuse a checkpoint. */
  private void tellSources(LogicalPlan plan, String root, String runId) {
    scala.collection.Iterator leaves = plan.collectLeaves().iterator();
    while (leaves.hasNext()) {
      Object leaf = leaves.next();
      if (leaf instanceof StreamingRelationV2) {
        String folder = ((StreamingRelationV2) leaf).extraOptions().get(folderOption);
        if (folder != null) {
          try {
            Path draft = Paths.get(folder, "." + file + "." + runId);
            Files.write(draft, root.getBytes("UTF-8"));
            Files.move(draft, Paths.get(folder, file), StandardCopyOption.ATOMIC_MOVE);
          } catch (IOException error) {
            // Spark logs it. The tasks of the first batch can refuse the checkpoint too.
            throw new RuntimeException(error);
          }
        }
      }
    }
  }

  public void onQueryProgress(StreamingQueryListener.QueryProgressEvent event) {}

  public void onQueryTerminated(StreamingQueryListener.QueryTerminatedEvent event) {}
}
