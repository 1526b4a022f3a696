package io.balancedstream;

import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import org.apache.spark.SparkContext;
import org.apache.spark.rdd.PartitionPruningRDD;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.types.StructType;
import scala.Function1;
import scala.Tuple2;
import scala.reflect.ClassTag;
import scala.reflect.ClassTag$;

/**
 * Data whose tasks prefer one executor, as those of a stateful operator do.
 */
public final class PinnedRows {
  /** So many that what reads, hashes and writes rows is compiled. */
  private static final int ROWS_PER_TASK = 2000;

  private static final int FEW = 10;

  public static final ClassTag ANY = ClassTag$.MODULE$.apply(Object.class);

  private final SparkContext context;
  private final Map hosts; // live executor id -> host

  public PinnedRows(SparkContext context, Map hosts) {
    this.context = context;
    this.hosts = hosts;
  }

  /** Generated rows with a key `k`, in so many tasks; null if the executor is gone. */
  public Dataset generate(SparkSession session, String executor, int tasks) {
    String host = (String) hosts.get(executor);
    if (host == null) return null;
    List rows = new ArrayList();
    for (int i = 0; i < tasks; i++) {
      rows.add(RowFactory.create(new Object[] {Long.valueOf(i)}));
    }
    RDD pinned = pin(context, executor, host, rows);
    return session.createDataFrame(pinned.toJavaRDD(), new StructType().add("n", "long"))
        .selectExpr(new String[] {"explode(sequence(n, n + " + ROWS_PER_TASK + ")) AS n"})
        .selectExpr(new String[] {"n % 10 AS k"});
  }

  /** The rows of each key, counted after a shuffle. */
  public static Dataset countByKey(Dataset rows) {
    return rows.groupBy(new Column[] {new Column("k")}).count();
  }

  /** Counts rows in tasks that prefer the executor, whatever the last shuffle prefers. */
  public void count(RDD rows, String executor) {
    RDD one = pinOne(executor);
    if (one != null) one.cartesian(rows, ANY).count();
  }

  /** Takes a few rows of the first partition, in a task that prefers the executor. */
  public void take(SparkPlan plan, String executor) {
    RDD one = pinOne(executor);
    if (one == null) return;
    // A set is a function, and one that executors have.
    Function1 first = (Function1) ScalaCollections.toSeq(
        Collections.singletonList(Integer.valueOf(0))).toSet();
    one.cartesian(PartitionPruningRDD.create(plan.execute(), first), ANY).take(FEW);
  }

  /** One element; null if the executor is gone. */
  private RDD pinOne(String executor) {
    String host = (String) hosts.get(executor);
    if (host == null) return null;
    return pin(context, executor, host, Collections.singletonList(Integer.valueOf(0)));
  }

  /** Elements of a task each. */
  public static RDD pin(SparkContext context, String executor, String host, List elements) {
    List places = new ArrayList();
    places.add("executor_" + host + "_" + executor);
    List placed = new ArrayList();
    for (int i = 0; i < elements.size(); i++) {
      placed.add(new Tuple2(elements.get(i), ScalaCollections.toSeq(places)));
    }
    return context.makeRDD(ScalaCollections.toSeq(placed), ANY);
  }
}
