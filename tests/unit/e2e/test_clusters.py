"""A cluster that is started for somebody does not stay when nobody waits for it any more."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

import clusters
import pytest


class Script:
    """Stands for `tests/cluster/cluster`.

    Attributes:
        folder: of all that it names.
        typed: its commands so far.
        problem: what starting a cluster ends with; None if it succeeds.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.typed: list[str] = []
        self.problem: BaseException | None = None

    def run(self, words: Sequence[str]) -> str:
        _, command = words
        self.typed.append(command)
        if command == "up":
            (self.folder / "kubeconfig").touch()
            if self.problem:
                raise self.problem
        return str(self.folder / command)


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Script:
    """On a machine with nothing but root and Go."""
    script = Script(tmp_path)
    monkeypatch.setattr(clusters, "_run", script.run)
    monkeypatch.setattr(clusters, "_docker_runs", lambda: False)
    monkeypatch.setattr(clusters, "SHARED_FOLDER", tmp_path / "shared")
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    monkeypatch.delenv("KUBECONFIG", raising=False)
    return script


def open_and_close(*, keep: bool = False) -> None:
    with clusters.open_cluster(keep=keep) as cluster:
        assert cluster.stop.endswith("/cluster down")


def test_it_is_stopped_at_the_end(script: Script) -> None:
    open_and_close()
    assert script.typed[-1] == "down"


def test_it_is_kept_for_who_asks(script: Script) -> None:
    open_and_close(keep=True)
    assert "down" not in script.typed


def test_one_that_ran_before_runs_on(script: Script) -> None:
    (script.folder / "kubeconfig").touch()
    open_and_close()
    assert "down" not in script.typed


@pytest.mark.parametrize(("keep", "ran_before"), [(False, False), (True, False), (False, True)])
def test_a_start_that_is_interrupted_leaves_nothing_that_was_not_there(
    script: Script, keep: bool, ran_before: bool
) -> None:
    script.problem = KeyboardInterrupt()
    if ran_before:
        (script.folder / "kubeconfig").touch()
    with pytest.raises(KeyboardInterrupt):
        open_and_close(keep=keep)
    assert ("down" in script.typed) is not (keep or ran_before)


def test_a_start_that_fails_leaves_its_logs(script: Script) -> None:
    script.problem = subprocess.CalledProcessError(1, ["cluster", "up"])
    with pytest.raises(subprocess.CalledProcessError):
        open_and_close()
    assert "down" not in script.typed
