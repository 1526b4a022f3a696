"""The only package that touches Spark's internals."""

from balancedstream.engine.engine import Engine

__all__ = ["Engine"]
