package org.apache.spark.api.plugin;

import java.util.Map;
import org.apache.spark.SparkContext;

public interface DriverPlugin {
  Map<String, String> init(SparkContext context, PluginContext pluginContext);

  void shutdown();
}
