package io.balancedstream;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.spark.SparkConf;

/** An agent that the driver itself starts, with a Python of the driver's image or machine. */
final class Child implements AgentProcess {
  private static final String PYTHON = "spark.balancedstream.python";
  private static final String SET_PYTHON =
      "Set " + PYTHON + " to a Python 3.11 or newer with balancedstream in it, or run the agent in"
          + " a sidecar (" + Sidecar.FOLDER + ")";

  /** Of an interpreter's environment: PREFIX/lib/python3.11/site-packages/balancedstream/NAME.jar. */
  private static final Pattern IN_ENVIRONMENT =
      Pattern.compile("(.*)/lib/python[0-9.]+/(?:site|dist)-packages/balancedstream/[^/]+");

  private final Process process;

  private Child(Process process) {
    this.process = process;
  }

  /** Starts it; null if there is no such interpreter. */
  static Child start(SparkConf conf, Map<String, String> told) throws IOException {
    ProcessBuilder builder = new ProcessBuilder(findPython(conf), "-c", readBootstrap());
    builder.redirectOutput(ProcessBuilder.Redirect.INHERIT);
    builder.redirectError(ProcessBuilder.Redirect.INHERIT);
    Map<String, String> environment = builder.environment();
    environment.putAll(told);
    // These are the application's, and for another Python than the agent's.
    environment.remove("PYTHONPATH");
    environment.remove("PYTHONHOME");
    environment.remove("SPARK_REMOTE");
    try {
      return new Child(builder.start());
    } catch (IOException problem) {
      Plugin.say("the agent's Python cannot be started (" + problem.getMessage()
          + "): the application runs on, not balanced. " + SET_PYTHON);
      return null;
    }
  }

  /** What to do where it ends again and again. */
  static String advise(SparkConf conf) {
    return "If the lines above do not say why, " + findPython(conf) + " may be no Python. "
        + SET_PYTHON;
  }

  @Override
  public int await() throws InterruptedException {
    return process.waitFor();
  }

  @Override
  public void end() {
    try {
      process.getOutputStream().close();
    } catch (IOException e) {
      // It has ended already.
    }
  }

  @Override
  public void kill() {
    process.destroyForcibly();
  }

  /** The one in the settings, else that of the environment with this jar, else PySpark's. */
  private static String findPython(SparkConf conf) {
    String set = conf.get(PYTHON, "");
    if (!set.isEmpty()) return set;
    Matcher matcher = IN_ENVIRONMENT.matcher(findJar());
    if (matcher.matches()) {
      Path own = Paths.get(matcher.group(1), "bin", "python3");
      if (Files.isExecutable(own)) return own.toString();
    }
    String pyspark = System.getenv("PYSPARK_PYTHON");
    return pyspark == null || pyspark.isEmpty() ? "python3" : pyspark;
  }

  private static String findJar() {
    try {
      return Paths.get(Child.class.getProtectionDomain().getCodeSource().getLocation().toURI())
          .toRealPath().toString();
    } catch (Exception e) {
      return ""; // not a file of this machine
    }
  }

  private static String readBootstrap() throws IOException {
    try (InputStream file = Child.class.getResourceAsStream("start_agent.py")) {
      ByteArrayOutputStream text = new ByteArrayOutputStream();
      byte[] part = new byte[4096];
      for (int read = file.read(part); read >= 0; read = file.read(part)) text.write(part, 0, read);
      return new String(text.toByteArray(), StandardCharsets.UTF_8);
    }
  }
}
