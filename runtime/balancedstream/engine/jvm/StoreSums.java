package io.balancedstream;

import java.util.Iterator;
import java.util.Map;
import java.util.TreeMap;

/**
 * What the state stores of a batch take of memory and did, by operator and executor. A batch of
 * thousands of partitions costs Python one row for each operator and executor.
 *
 * <p>It knows RocksDB only: any other store of Spark keeps its state in the JVM's heap.
 */
public final class StoreSums {
  /** The names of RocksDB's metrics in a plan, in the order of the values. */
  private static final String[] NAMES = {
      "memory used by state",
      "RocksDB: memory usage for pinned blocks",
      "RocksDB: number of get calls",
      "RocksDB: total get call latency",
      "RocksDB: read - count of cache hits in RocksDB block cache avoiding disk read",
      "RocksDB: read - count of cache misses that required reading from local disk",
      "RocksDB: write - writer wait time for compaction or flush to finish"};

  private final Map rows = new TreeMap(); // operator and executor as JSON -> long[]

  /** The values of one task, before any of its metrics is read. */
  public static long[] begin() {
    return new long[NAMES.length];
  }

  /** Takes in one metric of a task, if it is one of these. */
  public static void read(long[] values, String name, long value) {
    for (int i = 0; i < NAMES.length; i++) {
      if (NAMES[i].equals(name)) values[i] = value;
    }
  }

  /**
   * Adds the stores that one task had of an operator.
   *
   * @param place the operator and the executor, as two entries of a JSON list.
   */
  public void add(String place, long[] values) {
    long[] sums = (long[]) rows.get(place);
    if (sums == null) {
      sums = begin();
      rows.put(place, sums);
    }
    for (int i = 0; i < sums.length; i++) sums[i] += values[i];
  }

  /** A list for each operator and executor, separated by commas: both, and the values. */
  public String toJson() {
    StringBuilder json = new StringBuilder();
    Iterator each = rows.entrySet().iterator();
    while (each.hasNext()) {
      Map.Entry entry = (Map.Entry) each.next();
      if (json.length() > 0) json.append(',');
      json.append('[').append(entry.getKey());
      long[] sums = (long[]) entry.getValue();
      for (int i = 0; i < sums.length; i++) json.append(',').append(sums[i]);
      json.append(']');
    }
    return json.toString();
  }
}
