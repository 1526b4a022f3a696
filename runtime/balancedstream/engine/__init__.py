"""The only package that touches Spark's internals."""
