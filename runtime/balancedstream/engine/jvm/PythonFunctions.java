package io.balancedstream;

import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.PythonUDF;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;

/**
 * The Python functions of all running queries, as Spark ships them: pickled, or, above a megabyte, as
 * the name of a broadcast value. What `foreachBatch` runs is in no query's plan.
 *
 * <p>Janino knows neither lambdas nor type inference; hence the casts.
 */
public final class PythonFunctions {
  private final Map executions; // query id -> StreamExecution, of all sessions

  public PythonFunctions(Map activeStreamingQueries) {
    this.executions = activeStreamingQueries;
  }

  /** For each function: its operator, its `PythonEvalType`, and its bytes. */
  public List find() throws Exception {
    List found = new ArrayList();
    Iterator each = new ArrayList(executions.values()).iterator();
    while (each.hasNext()) {
      find((LogicalPlan) RunningQueries.call(each.next(), "analyzedPlan"), found);
    }
    return found;
  }

  private static void find(LogicalPlan plan, List found) {
    Iterator expressions = ScalaCollections.asJava(plan.expressions()).iterator();
    while (expressions.hasNext()) {
      find(plan.nodeName(), (Expression) expressions.next(), found);
    }
    Iterator children = ScalaCollections.asJava(plan.children()).iterator();
    while (children.hasNext()) find((LogicalPlan) children.next(), found);
  }

  private static void find(String operator, Expression expression, List found) {
    if (expression instanceof PythonUDF) {
      PythonUDF function = (PythonUDF) expression;
      byte[] command = toBytes(ScalaCollections.asJava(function.func().command()));
      found.add(new Object[] {operator, Integer.valueOf(function.evalType()), command});
    }
    Iterator children = ScalaCollections.asJava(expression.children()).iterator();
    while (children.hasNext()) find(operator, (Expression) children.next(), found);
  }

  private static byte[] toBytes(List values) {
    byte[] bytes = new byte[values.size()];
    Iterator it = values.iterator();
    for (int i = 0; i < bytes.length; i++) bytes[i] = ((Byte) it.next()).byteValue();
    return bytes;
  }
}
