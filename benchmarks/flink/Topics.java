import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Makes two topics, writes the lines of standard input to the first one, and prints what comes into
 * the second one. A line of input is a key, a tab and a value; one of output is the time at which
 * the broker took the result, in milliseconds since the Unix epoch, a tab and the value.
 */
public final class Topics {
  private Topics() {}

  /** Arguments: the broker's address, both topics, and how many partitions the first one has. */
  public static void main(String[] args) throws Exception {
    Properties broker = new Properties();
    broker.put("bootstrap.servers", args[0]);
    create(broker, args[1], args[2], Integer.parseInt(args[3]));
    Thread printer = new Thread(() -> print(broker, args[2]));
    printer.setDaemon(true);
    printer.start();
    BufferedReader lines =
        new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    try (KafkaProducer<String, String> producer =
        new KafkaProducer<>(broker, new StringSerializer(), new StringSerializer())) {
      for (String line = lines.readLine(); line != null; line = lines.readLine()) {
        int tab = line.indexOf('\t');
        producer.send(
            new ProducerRecord<>(args[1], line.substring(0, tab), line.substring(tab + 1)));
      }
    }
  }

  private static void create(Properties broker, String input, String output, int partitions)
      throws Exception {
    // One clock for the results of all engines: the broker's.
    Map<String, String> stamped = Map.of("message.timestamp.type", "LogAppendTime");
    try (Admin admin = Admin.create(broker)) {
      NewTopic results = new NewTopic(output, 1, (short) 1).configs(stamped);
      admin
          .createTopics(List.of(new NewTopic(input, partitions, (short) 1), results))
          .all()
          .get();
    }
  }

  private static void print(Properties broker, String output) {
    PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
    TopicPartition only = new TopicPartition(output, 0);
    try (KafkaConsumer<String, String> consumer =
        new KafkaConsumer<>(broker, new StringDeserializer(), new StringDeserializer())) {
      consumer.assign(Collections.singletonList(only));
      consumer.seekToBeginning(Collections.singletonList(only));
      out.println("ready");
      out.flush();
      while (true) {
        for (ConsumerRecord<String, String> result : consumer.poll(Duration.ofSeconds(1))) {
          out.println(result.timestamp() + "\t" + result.value());
        }
        out.flush();
      }
    }
  }
}
