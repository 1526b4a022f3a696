package io.balancedstream;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import org.apache.spark.SparkConf;
import org.apache.spark.SparkContext;
import org.apache.spark.api.plugin.DriverPlugin;
import org.apache.spark.api.plugin.ExecutorPlugin;
import org.apache.spark.api.plugin.PluginContext;
import org.apache.spark.api.plugin.SparkPlugin;

/**
 * Attaches an agent to a Spark application that is started with
 * `spark.plugins=io.balancedstream.Plugin`. The agent starts with the first streaming query, so a
 * batch application pays nothing, and the scheduler and a session exist by then.
 *
 * <p>An error that left this class would end the application. None does.
 */
public final class Plugin implements SparkPlugin, DriverPlugin {
  private static final String PLUGINS = "spark.plugins";

  /** With it, code in the user's own process knows that there is a plugin that can stand down. */
  private static final String MARK = "spark.balancedstream.plugin";

  /** For people: Spark has no public way to add a tab to its UI, but shows settings there. */
  private static final String PAGE = "spark.balancedstream.page";

  private static final String METRICS = "spark.balancedstream.metrics.";
  private static final List<String> EVERY_ADDRESS = Arrays.asList("", "0.0.0.0", "::", "[::]");

  private static final String MODE = "spark.balancedstream.mode";
  private static final String STREAM = "spark.balancedstream.stream";
  private static final String DYNAMIC_ALLOCATION = "spark.dynamicAllocation.enabled";

  /** Without the first, an executor that is told to leave stays, idle. The others make it quick. */
  private static final String[][] LEAVING = {
    {"spark.decommission.enabled", "true"},
    {"spark.storage.decommission.enabled", "true"},
    {"spark.storage.decommission.shuffleBlocks.enabled", "true"},
    {"spark.storage.decommission.rddBlocks.enabled", "true"},
    {"spark.storage.decommission.replicationReattemptInterval", "1s"},
  };

  private static Plugin active; // of the running application

  private SparkConf conf;
  private Agent agent; // null before the start, and where there is nothing to do

  @Override
  public DriverPlugin driverPlugin() {
    return this;
  }

  @Override
  public ExecutorPlugin executorPlugin() {
    return null;
  }

  @Override
  public Map<String, String> init(SparkContext context, PluginContext unused) {
    try {
      begin(context);
    } catch (Throwable problem) {
      say("the plugin could not begin (" + problem + "): the application runs on, not balanced");
    }
    return Collections.emptyMap();
  }

  private void begin(SparkContext context) {
    conf = context.conf();
    leaveOut(conf);
    if ("off".equals(conf.get(MODE, ""))) return;
    synchronized (Plugin.class) {
      agent = new Agent(context);
      active = this;
    }
    conf.set(MARK, Agent.findVersion());
    String page = nameLivePage(conf);
    if (!page.isEmpty()) conf.set(PAGE, page);
    if (mayScale(conf)) {
      for (String[] setting : LEAVING) conf.setIfMissing(setting[0], setting[1]);
    }
    context.addSparkListener(new FirstQuery(agent));
  }

  /** Where a browser finds the live report; empty if it is not served, or on any free port. */
  private static String nameLivePage(SparkConf conf) {
    String port = conf.get(METRICS + "port", "0");
    if ("0".equals(port)) return "";
    String address = conf.get(METRICS + "address", "127.0.0.1");
    boolean every = EVERY_ADDRESS.contains(address);
    String host = every ? conf.get("spark.driver.host", "127.0.0.1") : address;
    boolean bare = host.contains(":") && !host.startsWith("[");
    return "http://" + (bare ? "[" + host + "]" : host) + ":" + port + "/report";
  }

  /** Whether it may take executors away; where the operator decides, the BalancedStream says so. */
  private static boolean mayScale(SparkConf conf) {
    boolean acts = "auto".equals(conf.get(MODE, "")) || !conf.get(STREAM, "").isEmpty();
    return acts && !"true".equalsIgnoreCase(conf.get(DYNAMIC_ALLOCATION, ""));
  }

  /**
   * Takes this plugin out of the list that executors get: they have no part of it, and one without
   * the jar would fail to start, again and again. Spark's driver has read the list already.
   */
  private static void leaveOut(SparkConf conf) {
    List<String> others = new ArrayList<>();
    for (String name : conf.get(PLUGINS, "").split(",")) {
      if (!name.trim().isEmpty() && !name.trim().equals(Plugin.class.getName())) {
        others.add(name.trim());
      }
    }
    if (others.isEmpty()) {
      conf.remove(PLUGINS);
    } else {
      conf.set(PLUGINS, String.join(",", others));
    }
  }

  /** The agent says that it balances from now on. */
  public static void join() {
    synchronized (Plugin.class) {
      if (active != null) active.agent.join();
    }
  }

  /**
   * Ends the agent for good, because the application balances itself. When this returns, nothing of
   * the agent is left.
   */
  public static void standDown(String reason) {
    Plugin plugin;
    synchronized (Plugin.class) {
      plugin = active;
    }
    if (plugin == null || !plugin.agent.stop()) return;
    plugin.conf.remove(MARK);
    plugin.conf.remove(PAGE);
    say("the plugin stands down: " + reason);
  }

  @Override
  public void shutdown() {
    try {
      if (agent != null) agent.stop();
    } catch (Throwable problem) {
      say("the plugin could not end (" + problem + ")");
    } finally {
      synchronized (Plugin.class) {
        if (active == this) active = null;
      }
    }
  }

  /** Beside Spark's log, whatever the level of the log is. */
  static void say(String text) {
    System.err.println("balancedstream: " + text);
  }
}
