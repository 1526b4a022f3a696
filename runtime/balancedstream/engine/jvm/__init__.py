"""What runs in the driver's JVM, and what compiles it."""
