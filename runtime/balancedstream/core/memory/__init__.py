"""What executors take of memory, and whether the state of a stream fits into it."""
