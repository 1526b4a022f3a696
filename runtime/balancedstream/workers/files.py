"""Files that appear as a whole: a reader sees the old content or the new, never a part."""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

DRAFT = re.compile(r"\.[0-9a-f]{32}")
"""Names of drafts. One that is still there long after it was written belongs to a killed task."""


@contextmanager
def draft(folder: Path, content: bytes, *, durable: bool = False) -> Iterator[Path]:
    """A complete file with a name of its own, for the caller to rename or link.

    Whatever is still under that name at the end is removed.

    Args:
        folder: where the file is written; it exists.
        content: of the file.
        durable: whether the content is on storage before the file can get its name.

    Raises:
        OSError: the file cannot be written.
    """
    file = folder / f".{uuid.uuid4().hex}"
    try:
        with file.open("xb") as stream:
            stream.write(content)
            if durable:
                stream.flush()
                os.fsync(stream.fileno())
        yield file
    finally:
        with suppress(OSError):
            file.unlink()
