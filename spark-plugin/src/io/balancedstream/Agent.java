package io.balancedstream;

import java.io.IOException;
import java.math.BigInteger;
import java.net.InetAddress;
import java.security.SecureRandom;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.SparkConf;
import org.apache.spark.SparkContext;
import org.apache.spark.scheduler.SparkListenerInterface;
import py4j.ClientServer;

/**
 * The agent: a process that balances the driver's application, a child of the driver or in a
 * sidecar. It reaches the driver by a Py4J gateway on loopback, which asks for a secret. Whatever
 * becomes of the process, the application goes on, and nothing of the agent stays in it.
 *
 * <p>It ends when its standard input does, so also when the driver is killed.
 */
final class Agent {
  private static final String LOCALITY_WAIT = "spark.locality.wait.process";

  /** The listener that the agent compiles and registers; by name, for it is of another loader. */
  private static final String LISTENER = "io.balancedstream.BatchListener";

  /** The agent said why it is of no use, and another start would end the same way. */
  private static final int HOPELESS = 78;

  private static final int MAX_STARTS = 4;
  private static final long FIRST_PAUSE_MS = 1_000;
  private static final long PAUSE_FACTOR = 5;

  /** After so long, a failure is no longer one of those before. */
  private static final long FORGET_AFTER_MS = 600_000;

  /** Time for the agent to end by itself, which includes its report. */
  private static final long END_MS = 10_000;

  private static final int SECRET_BITS = 256;

  private final SparkContext context;
  private final ClassLoader classes; // of the application, with the jars of its users
  private final String folder;  // shared with a sidecar; empty without one
  private Thread keeper;        // null before the start
  private AgentProcess process; // null while none runs
  private boolean joined;       // that process has begun to balance
  private boolean stopped;

  Agent(SparkContext context) {
    this.context = context;
    this.classes = Thread.currentThread().getContextClassLoader();
    this.folder = context.conf().get(Sidecar.FOLDER, "");
  }

  /** Begins, if it did not begin before; returns at once. `trigger` is of no use any more. */
  synchronized void start(SparkListenerInterface trigger) {
    if (stopped || keeper != null) return;
    keeper = new Thread(() -> keep(trigger), "balancedstream-agent");
    // Py4J's threads inherit both. A thread that is no daemon would keep an application that ended.
    keeper.setDaemon(true);
    keeper.setContextClassLoader(classes);
    keeper.start();
  }

  /** Ends for good; returns whether it was not stopped before. Nothing is left when it returns. */
  boolean stop() {
    Thread running;
    synchronized (this) {
      if (stopped) return false;
      stopped = true;
      running = keeper;
      if (process != null) end(process);
      notifyAll();
    }
    try {
      if (running != null && !isOver(running)) {
        synchronized (this) {
          if (process != null) process.kill();
        }
        isOver(running);
      }
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
    }
    return true;
  }

  private static boolean isOver(Thread thread) throws InterruptedException {
    thread.join(END_MS);
    return !thread.isAlive();
  }

  private void keep(SparkListenerInterface trigger) {
    try {
      // Not in the listener's own thread: with its last listener Spark ends, and waits for, that.
      context.removeSparkListener(trigger);
      long pauseMs = FIRST_PAUSE_MS;
      for (int starts = 1; !isStopped(); starts++) {
        long startedMs = System.currentTimeMillis();
        int status = run();
        if (isStopped() || status == HOPELESS) return;
        if (System.currentTimeMillis() - startedMs > FORGET_AFTER_MS) {
          starts = 1;
          pauseMs = FIRST_PAUSE_MS;
        }
        if (starts == MAX_STARTS) {
          Plugin.say("the agent ended with status " + status + ", the last time of " + MAX_STARTS
              + ": the application runs on, not balanced. "
              + (folder.isEmpty() ? Child.advise(context.conf()) : Sidecar.SEE_LOG));
          return;
        }
        Plugin.say("the agent ended with status " + status + " and starts again in "
            + pauseMs / 1000 + " s; the application runs on");
        pause(pauseMs);
        pauseMs *= PAUSE_FACTOR;
      }
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
    } catch (Throwable problem) {
      Plugin.say("the agent cannot be kept (" + problem
          + "): the application runs on, not balanced");
    }
  }

  private synchronized boolean isStopped() {
    return stopped || context.isStopped();
  }

  private synchronized void pause(long pauseMs) throws InterruptedException {
    long endMs = System.currentTimeMillis() + pauseMs;
    long leftMs = pauseMs;
    while (!stopped && leftMs > 0) {
      wait(leftMs);
      leftMs = endMs - System.currentTimeMillis();
    }
  }

  /** One life of the agent; returns its exit status. */
  private int run() throws IOException, InterruptedException {
    SparkConf conf = context.conf();
    String wait = conf.get(LOCALITY_WAIT, null);
    String secret = new BigInteger(SECRET_BITS, new SecureRandom()).toString(16);
    // With PYSPARK_PIN_THREAD=false, Spark's own has a thread that keeps a driver from ending.
    ClientServer gateway = new ClientServer.ClientServerBuilder()
        .authToken(secret).javaPort(0).javaAddress(InetAddress.getLoopbackAddress()).build();
    try {
      gateway.startServer();
      int port = gateway.getJavaServer().getListeningPort();
      AgentProcess started = startProcess(secret, tell(port, secret));
      if (started == null) return HOPELESS;
      int status = started.await();
      synchronized (this) {
        process = null;
      }
      return status;
    } finally {
      gateway.shutdown();
      if (wait == null) {
        conf.remove(LOCALITY_WAIT);
      } else {
        conf.set(LOCALITY_WAIT, wait);
      }
      removeListeners(); // whose end has tasks wait as the setting says
    }
  }

  /** What the agent has to know, by names of environment variables. */
  private static Map<String, String> tell(int port, String secret) {
    Map<String, String> told = new LinkedHashMap<>();
    told.put("PYSPARK_GATEWAY_PORT", Integer.toString(port));
    told.put("PYSPARK_GATEWAY_SECRET", secret);
    told.put("PYSPARK_PIN_THREAD", "true"); // the gateway is a ClientServer
    told.put("BALANCEDSTREAM_PLUGIN_VERSION", findVersion());
    return told;
  }

  /** The agent's process; null if there can be none, or the application ends. */
  private synchronized AgentProcess startProcess(String secret, Map<String, String> told)
      throws IOException {
    if (stopped) return null;
    joined = false;
    process =
        folder.isEmpty() ? Child.start(context.conf(), told) : Sidecar.invite(folder, secret, told);
    return process;
  }

  /** Of this jar; the agent is of the same one. */
  static String findVersion() {
    String version = Agent.class.getPackage().getImplementationVersion();
    return version == null ? "" : version;
  }

  /** The agent balances from now on. */
  synchronized void join() {
    joined = true;
  }

  /** Lets the agent end by itself; one that is still starting has nothing to bring to an end. */
  private void end(AgentProcess process) {
    // Its listener does not tell: after the application's end the agent has removed it already.
    if (joined) {
      process.end();
    } else {
      process.kill();
    }
  }

  private List<SparkListenerInterface> findListeners() {
    List<SparkListenerInterface> found = new ArrayList<>();
    for (SparkListenerInterface listener : context.listenerBus().listeners()) {
      if (listener.getClass().getName().equals(LISTENER)) found.add(listener);
    }
    return found;
  }

  /** What an agent that was killed left: a listener to which nobody listens. */
  private void removeListeners() {
    for (SparkListenerInterface listener : findListeners()) {
      context.removeSparkListener(listener);
      try {
        listener.getClass().getMethod("close").invoke(listener);
      } catch (ReflectiveOperationException e) {
        Plugin.say("the agent's listener is removed, but could not be closed (" + e + ")");
      }
    }
  }
}
