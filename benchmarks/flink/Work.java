/** What each row costs where the state of its key is, the same on Spark and on Flink. */
public final class Work {
  private Work() {}

  /** So many rounds of a generator of random numbers, each of which needs the one before. */
  public static long burn(long seed, int rounds) {
    long state = seed;
    for (int round = 0; round < rounds; round++) {
      state ^= state << 13;
      state ^= state >>> 7;
      state ^= state << 17;
      state += round;
    }
    return state;
  }
}
