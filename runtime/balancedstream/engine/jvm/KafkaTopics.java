package io.balancedstream;

import java.lang.reflect.Method;
import java.util.HashMap;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;

/**
 * The ends of Kafka's topics, asked for between two batches: the counterpart of `sources/kafka.py`. By
 * reflection: the connector is the application's own, and may not be there.
 *
 * <p>`KafkaOffsetReaderAdmin` holds a lock while it asks, and a batch is planned under the same lock. So
 * its methods are not called: its client is asked, which any number of threads may do. Its older
 * brother, `KafkaOffsetReaderConsumer`, has a client for one thread only, and is not asked.
 */
public final class KafkaTopics {
  private static final String STREAM = "org.apache.spark.sql.kafka010.KafkaMicroBatchStream";
  private static final String READER = "org.apache.spark.sql.kafka010.KafkaOffsetReaderAdmin";

  public static boolean isTopics(Object source) {
    return source.getClass().getName().equals(STREAM);
  }

  /**
   * The ends of the partitions of an offset, as JSON of the same form; null if this source cannot be
   * asked. Throws what the client throws, and `TimeoutException` after `timeoutMs`; the request ends
   * then, too.
   */
  public static String ends(Object source, Object offset, int timeoutMs) throws Exception {
    Object reader = RunningQueries.call(source, "kafkaOffsetReader");
    if (!reader.getClass().getName().equals(READER)) return null;
    // Null before the query itself has asked, and after a failure of its own.
    Object client = RunningQueries.call(reader, "_admin");
    if (client == null) return null;
    ClassLoader loader = reader.getClass().getClassLoader();
    Class spec = loader.loadClass("org.apache.kafka.clients.admin.OffsetSpec");
    Object latest = spec.getMethod("latest", new Class[0]).invoke(null, new Object[0]);
    Map asked = new HashMap();
    Map known = ScalaCollections.asJava(
        (scala.collection.Map) RunningQueries.call(offset, "partitionToOffsets"));
    for (Object partition : known.keySet()) asked.put(partition, latest);
    Object isolation = RunningQueries.call(reader, "isolationLevel");
    Class optionsClass = loader.loadClass("org.apache.kafka.clients.admin.ListOffsetsOptions");
    Object options = optionsClass
        .getConstructor(new Class[] {loader.loadClass("org.apache.kafka.common.IsolationLevel")})
        .newInstance(new Object[] {isolation});
    optionsClass.getMethod("timeoutMs", new Class[] {Integer.class})
        .invoke(options, new Object[] {Integer.valueOf(timeoutMs)});
    Method list = loader.loadClass("org.apache.kafka.clients.admin.Admin")
        .getMethod("listOffsets", new Class[] {Map.class, optionsClass});
    Object future = RunningQueries.call(list.invoke(client, new Object[] {asked, options}), "all");
    Map found = (Map) loader.loadClass("org.apache.kafka.common.KafkaFuture")
        .getMethod("get", new Class[] {long.class, TimeUnit.class})
        .invoke(future, new Object[] {Long.valueOf(timeoutMs), TimeUnit.MILLISECONDS});
    return toJson(found);
  }

  private static String toJson(Map found) throws Exception {
    Map topics = new TreeMap();
    for (Object each : found.entrySet()) {
      Map.Entry entry = (Map.Entry) each;
      String topic = (String) RunningQueries.call(entry.getKey(), "topic");
      StringBuilder ofTopic = (StringBuilder) topics.get(topic);
      if (ofTopic == null) {
        ofTopic = new StringBuilder();
        topics.put(topic, ofTopic);
      }
      if (ofTopic.length() > 0) ofTopic.append(',');
      ofTopic.append('"').append(RunningQueries.call(entry.getKey(), "partition")).append("\":")
          .append(RunningQueries.call(entry.getValue(), "offset"));
    }
    StringBuilder json = new StringBuilder("{");
    for (Object each : topics.entrySet()) {
      Map.Entry entry = (Map.Entry) each;
      if (json.length() > 1) json.append(',');
      json.append(StatefulOperators.quote((String) entry.getKey())).append(":{")
          .append(entry.getValue()).append('}');
    }
    return json.append('}').toString();
  }
}
