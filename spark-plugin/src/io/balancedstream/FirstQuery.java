package io.balancedstream;

import org.apache.spark.scheduler.SparkListener;
import org.apache.spark.scheduler.SparkListenerEvent;

/** Starts the agent when a streaming query starts; all sessions of the application post here. */
final class FirstQuery extends SparkListener {
  /** By name, so that this class needs nothing of Spark SQL, and loads without it. */
  private static final String STARTED =
      "org.apache.spark.sql.streaming.StreamingQueryListener$QueryStartedEvent";

  private final Agent agent;

  FirstQuery(Agent agent) {
    this.agent = agent;
  }

  @Override
  public void onOtherEvent(SparkListenerEvent event) {
    if (event.getClass().getName().equals(STARTED)) agent.start(this);
  }
}
