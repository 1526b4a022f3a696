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
 */
public final class PythonFunctions {
  private final Map executions; // query id -> StreamExecution, of all sessions

  public PythonFunctions(Map activeStreamingQueries) {
    this.executions = activeStreamingQueries;
  }

  /** For each function: its operator, its `PythonEvalType`, and its bytes. */
  public List find() throws Exception {
    List found = new ArrayList();
    for (Object each : new ArrayList(executions.values())) {
      find((LogicalPlan) RunningQueries.call(each, "analyzedPlan"), found);
    }
    return found;
  }

  private static void find(LogicalPlan plan, List found) {
    for (Object each : ScalaCollections.asJava(plan.expressions())) {
      find(plan.nodeName(), (Expression) each, found);
    }
    for (Object each : ScalaCollections.asJava(plan.children())) find((LogicalPlan) each, found);
  }

  private static void find(String operator, Expression expression, List found) {
    if (expression instanceof PythonUDF) {
      PythonUDF function = (PythonUDF) expression;
      byte[] command = toBytes(ScalaCollections.asJava(function.func().command()));
      found.add(new Object[] {operator, Integer.valueOf(function.evalType()), command});
    }
    for (Object each : ScalaCollections.asJava(expression.children())) {
      find(operator, (Expression) each, found);
    }
  }

  private static byte[] toBytes(List values) {
    byte[] bytes = new byte[values.size()];
    Iterator it = values.iterator();
    for (int i = 0; i < bytes.length; i++) bytes[i] = ((Byte) it.next()).byteValue();
    return bytes;
  }
}
