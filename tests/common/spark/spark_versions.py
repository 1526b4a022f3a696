"""Which tests run with the Spark that is installed."""

from __future__ import annotations

import pyspark
import pytest

from balancedstream.engine.traits import Version, name_version, read_version

SPARK = read_version(pyspark.__version__)


def needs_spark(first: Version) -> pytest.MarkDecorator:
    """Skips a test with a Spark that is older than this one."""
    return pytest.mark.skipif(first > SPARK, reason=f"needs Spark {name_version(first)}")
