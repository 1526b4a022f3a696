"""How long tests of this folder wait for what will happen."""

from __future__ import annotations

PATIENCE_S = 300.0
"""Only what will never happen takes so long. The first batches after Spark's start take 80 s where
two applications start on two slow cores."""
