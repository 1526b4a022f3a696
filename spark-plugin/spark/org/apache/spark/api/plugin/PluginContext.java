package org.apache.spark.api.plugin;

public interface PluginContext {}
