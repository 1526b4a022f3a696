"""What the benchmark beside Flink needs: Flink's processes, rows by Kafka, and figures of both.

Java that both engines run is beside these files and is compiled when the benchmark starts.
"""

import sys
from pathlib import Path

TESTS = Path(__file__).parents[2] / "tests" / "common"
sys.path += [str(TESTS), str(TESTS / "spark")]
