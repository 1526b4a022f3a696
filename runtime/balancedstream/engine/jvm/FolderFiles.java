package io.balancedstream;

import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.WeakHashMap;
import scala.collection.Seq;

/**
 * Files that Spark has listed for its source of files (`FileStreamSource`), and that no batch has taken:
 * the counterpart of `sources/files.py`. Read by reflection: another version of Spark may not have it.
 */
public final class FolderFiles {
  private static final String BEFORE_4_1 =
      "org.apache.spark.sql.execution.streaming.FileStreamSource";
  private static final String SINCE_4_1 =
      "org.apache.spark.sql.execution.streaming.runtime.FileStreamSource";

  // Source -> what it had listed when it was told to list again, as JSON, by the offset of then.
  private final Map before = Collections.synchronizedMap(new WeakHashMap());

  private static final class Listed {
    Object offset;
    String waiting;
  }

  public static boolean isFolder(Object source) {
    String name = source.getClass().getName();
    return name.equals(SINCE_4_1) || name.equals(BEFORE_4_1);
  }

  /**
   * The JSON of the number of files that wait, of those that were ever taken, of the offset up to
   * which they were, and of the bytes that wait (null before Spark 4.0, which does not keep sizes).
   */
  public String toJson(Object source) throws Exception {
    while (true) {
      Object offset = RunningQueries.call(source, "metadataLogCurrentOffset");
      Seq unread = (Seq) RunningQueries.call(source, "unreadFiles"); // null if all was read
      Object taken = RunningQueries.call(RunningQueries.call(source, "seenFiles"), "size");
      // The next batch may take its files meanwhile: all of it must be of one moment.
      if (!offset.equals(RunningQueries.call(source, "metadataLogCurrentOffset"))) continue;
      Listed known = (Listed) before.get(source);
      boolean isOld = unread == null && known != null && known.offset.equals(offset);
      String[] waiting = (isOld ? known.waiting : sum(unread)).split(",");
      return "[" + waiting[0] + "," + taken + "," + offset + "," + waiting[1] + "]";
    }
  }

  /**
   * Has the source list its folder for the next batch, as it does where nothing is limited. Under a
   * limit it would give what is left of its list to the next batches, and look for files that came
   * meanwhile only when less than a fifth of a batch is left. Waits while the source lists.
   */
  public void listAgain(Object source) throws Exception {
    synchronized (source) { // as `fetchMaxOffset` is, which reads the field twice
      Seq unread = (Seq) RunningQueries.call(source, "unreadFiles");
      if (unread == null) return;
      Listed known = new Listed();
      known.offset = RunningQueries.call(source, "metadataLogCurrentOffset");
      known.waiting = sum(unread);
      before.put(source, known);
      RunningQueries.set(source, "unreadFiles", null);
    }
  }

  private static String sum(Seq unread) throws Exception {
    if (unread == null) return "0,0";
    List files = ScalaCollections.asJava(unread);
    long bytes = 0L;
    for (Object file : files) {
      if (!file.getClass().getSimpleName().equals("NewFileEntry")) return files.size() + ",null";
      bytes += ((Long) RunningQueries.call(file, "size")).longValue();
    }
    return files.size() + "," + bytes;
  }
}
