"""Files that appear as a whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from balancedstream.workers.files import DRAFT, draft


@pytest.mark.parametrize("durable", [False, True])
def test_a_file_is_replaced_as_a_whole_and_leaves_no_draft(tmp_path: Path, durable: bool) -> None:
    for content in (b"longer than the next", b"next"):
        with draft(tmp_path, content, durable=durable) as file:
            assert DRAFT.fullmatch(file.name)
            assert file.read_bytes() == content
            file.replace(tmp_path / "wish")
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("wish", b"next")]


def test_a_draft_that_gets_no_name_is_removed(tmp_path: Path) -> None:
    with draft(tmp_path, b"content") as file:
        (tmp_path / "linked").hardlink_to(file)
    with pytest.raises(ValueError, match="stop"), draft(tmp_path, b"content"):
        int("stop")
    assert [path.name for path in tmp_path.iterdir()] == ["linked"]
