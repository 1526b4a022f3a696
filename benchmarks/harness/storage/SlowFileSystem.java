package io.balancedstream.benchmarks;

import java.io.IOException;
import java.net.URI;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSInputStream;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;

/** Local files under `slow:`, read as from an object store: what an open takes, and what a process gets. */
public final class SlowFileSystem extends RawLocalFileSystem {
  private static final URI NAME = URI.create("slow:///");
  private static final String OPEN_MS = "fs.slow.open-ms";
  private static final long BYTES_PER_S = 50_000_000;

  /** When all that was read so far may have arrived; of the whole process, as a network is. */
  private static long arrivedNs = System.nanoTime();

  private long openMs;

  @Override
  public void initialize(URI name, Configuration settings) throws IOException {
    super.initialize(name, settings);
    openMs = Long.parseLong(settings.get(OPEN_MS));
  }

  @Override
  public URI getUri() {
    return NAME;
  }

  @Override
  public String getScheme() {
    return NAME.getScheme();
  }

  @Override
  public FSDataInputStream open(Path path, int bufferSize) throws IOException {
    sleepNs(openMs * 1_000_000);
    return new FSDataInputStream(new SlowStream(super.open(path, bufferSize)));
  }

  private static void await(int bytes) throws IOException {
    long dueNs;
    synchronized (SlowFileSystem.class) {
      arrivedNs = Math.max(arrivedNs, System.nanoTime()) + bytes * 1_000_000_000L / BYTES_PER_S;
      dueNs = arrivedNs;
    }
    sleepNs(dueNs - System.nanoTime());
  }

  private static void sleepNs(long ns) throws IOException {
    if (ns <= 0) return;
    try {
      Thread.sleep(ns / 1_000_000, (int) (ns % 1_000_000));
    } catch (InterruptedException interrupted) {
      Thread.currentThread().interrupt();
      throw new IOException("interrupted", interrupted);
    }
  }

  private static final class SlowStream extends FSInputStream {
    private final FSDataInputStream in;

    SlowStream(FSDataInputStream in) {
      this.in = in;
    }

    @Override
    public int read() throws IOException {
      int value = in.read();
      if (value >= 0) await(1);
      return value;
    }

    @Override
    public int read(byte[] buffer, int offset, int length) throws IOException {
      int count = in.read(buffer, offset, length);
      if (count > 0) await(count);
      return count;
    }

    @Override
    public void seek(long position) throws IOException {
      in.seek(position);
    }

    @Override
    public long getPos() throws IOException {
      return in.getPos();
    }

    @Override
    public boolean seekToNewSource(long position) throws IOException {
      return in.seekToNewSource(position);
    }

    @Override
    public void close() throws IOException {
      in.close();
    }
  }
}
