"""What a task reports to the driver of the keys that it worked on.

It stands alone because the driver imports it with every Spark, and what tasks do with keys only
with one that has all they need.
"""

from __future__ import annotations

from typing import Any

KeyReport = dict[str, Any]
"""See `keyed.tasks.KeyTask.finish`."""
