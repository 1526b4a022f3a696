"""The Spark application: the only package that uses Spark's private API."""
