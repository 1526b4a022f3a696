package io.balancedstream;

/** The agent's process, wherever it runs. */
interface AgentProcess {
  /** Waits for its end; returns its exit status. */
  int await() throws InterruptedException;

  /** Lets it end by itself: its standard input ends. */
  void end();

  /** Ends it at once, or at least leaves it alone for good. */
  void kill();
}
