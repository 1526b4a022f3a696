import org.apache.flink.table.functions.AggregateFunction;

/** Counts rows after the work for each: an aggregate, so that Flink calls it where the state is. */
public final class SlowCount extends AggregateFunction<Long, SlowCount.Counted> {
  /** The state of a key. */
  public static final class Counted {
    public long rows;
    public long last;
  }

  @Override
  public Counted createAccumulator() {
    return new Counted();
  }

  @Override
  public Long getValue(Counted counted) {
    return counted.rows;
  }

  /** Adds a row. The result of the work is kept, or a compiler might leave the work out. */
  public void accumulate(Counted counted, Long seed, Integer rounds) {
    counted.rows++;
    counted.last = Work.burn(seed, rounds);
  }
}
