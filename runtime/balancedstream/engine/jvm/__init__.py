"""What runs in the driver's JVM, and what compiles it.

Janino, the compiler that Spark ships, knows neither lambdas nor type inference; hence the casts.
"""
