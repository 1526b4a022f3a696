package io.balancedstream;

import java.util.List;
import java.util.Map;
import scala.collection.JavaConverters;

/**
 * Scala's collections for Java, by what Scala 2.12 (Spark 3.5) and 2.13 both have. Where 2.12 wants a
 * `scala.collection.Seq` and 2.13 an immutable one, an immutable one does.
 */
public final class ScalaCollections {
  public static List asJava(scala.collection.Seq values) {
    return JavaConverters.seqAsJavaList(values);
  }

  public static Map asJava(scala.collection.Map values) {
    return JavaConverters.mapAsJavaMap(values);
  }

  public static scala.collection.immutable.Seq toSeq(List values) {
    return JavaConverters.asScalaBuffer(values).toList();
  }
}
