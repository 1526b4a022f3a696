"""The archive that Krew installs: its manifest names this release, and what is in it runs."""

from __future__ import annotations

import hashlib
import importlib.util
import subprocess
import sys
import tarfile
from pathlib import Path
from types import ModuleType

import pytest
import yaml

from balancedstream.version import __version__

KREW = Path(__file__).parents[2] / "krew"


@pytest.fixture
def package() -> ModuleType:
    spec = importlib.util.spec_from_file_location("package", KREW / "package.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def lib(tmp_path: Path) -> Path:
    """In place of all packages, one module that says that it was called."""
    folder = tmp_path / "lib" / "balancedstream_operator" / "kubectl"
    folder.mkdir(parents=True)
    for package in (folder, folder.parent):
        (package / "__init__.py").touch()
    (folder / "main.py").write_text("def main():\n    print('called')\n    return 3\n", "utf-8")
    return tmp_path / "lib"


def test_an_older_python_is_one_sentence_and_the_status_of_an_error(tmp_path: Path) -> None:
    text = (KREW / "kubectl-bst").read_text("utf-8")
    script = tmp_path / "kubectl-bst"
    script.write_text(f"import sys\nsys.version_info = (3, 10)\n{text}", "utf-8")
    found = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert found.returncode == 2
    assert found.stderr == (
        "error: kubectl bst needs Python 3.11 or newer as python3 on the PATH\n"
    )


def test_the_manifest_names_this_release_and_the_archives_checksum(package: ModuleType) -> None:
    manifest = yaml.safe_load(package.render_manifest("0f" * 32))
    assert manifest["metadata"]["name"] == "bst"
    assert manifest["spec"]["version"] == f"v{__version__}"
    (platform,) = manifest["spec"]["platforms"]
    assert platform["uri"].endswith(f"/v{__version__}/{package.ARCHIVE}")
    assert (platform["sha256"], platform["bin"]) == ("0f" * 32, "kubectl-bst")


def test_what_is_unpacked_runs_by_a_link_to_it(
    package: ModuleType, lib: Path, tmp_path: Path
) -> None:
    archive = tmp_path / package.ARCHIVE
    assert package.pack(lib, archive) == hashlib.sha256(archive.read_bytes()).hexdigest()
    with tarfile.open(archive) as packed:
        packed.extractall(tmp_path / "store", filter="data")
    link = tmp_path / "kubectl-bst"
    link.symlink_to(tmp_path / "store" / "kubectl-bst")
    assert (tmp_path / "store" / "LICENSE").exists()
    ended = subprocess.run([sys.executable, link], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (3, "called\n")


def test_the_same_files_make_the_same_archive(
    package: ModuleType, lib: Path, tmp_path: Path
) -> None:
    first = package.pack(lib, tmp_path / "first")
    (lib / "balancedstream_operator" / "kubectl" / "main.py").touch()
    assert package.pack(lib, tmp_path / "second") == first
