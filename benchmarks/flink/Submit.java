import org.apache.flink.table.api.EnvironmentSettings;
import org.apache.flink.table.api.TableEnvironment;

/** A job of Flink: its arguments are SQL statements, of which the last one inserts. */
public final class Submit {
  private Submit() {}

  public static void main(String[] statements) {
    TableEnvironment tables = TableEnvironment.create(EnvironmentSettings.inStreamingMode());
    for (String statement : statements) {
      tables.executeSql(statement);
    }
  }
}
