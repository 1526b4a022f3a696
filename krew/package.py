"""Makes what Krew installs: kubectl-bst.tar.gz and bst.yaml, the manifest with its checksum.

python krew/package.py FOLDER, in a clone; it needs pip and a package index.
"""

from __future__ import annotations

import gzip
import hashlib
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from string import Template

from balancedstream.version import __version__

HERE = Path(__file__).parent
ARCHIVE = "kubectl-bst.tar.gz"
CLIENT = "kubernetes>=35,<36"
"""Later ones need compiled modules, which one archive cannot have for all platforms."""


def render_manifest(sha256: str) -> str:
    """The manifest of this release.

    Args:
        sha256: of the archive, as hexadecimal digits.
    """
    template = Template((HERE / "bst.template.yaml").read_text("utf-8"))
    # The first line is for those who read the template.
    return template.substitute(VERSION=__version__, SHA256=sha256).partition("\n")[2]


def pack(lib: Path, archive: Path) -> str:
    """Packs the launcher and the packages; returns the checksum, the same for the same files.

    Args:
        lib: folder with all packages that the plugin imports.
        archive: to write.
    """
    files = {path: f"lib/{path.relative_to(lib)}" for path in lib.rglob("*") if path.is_file()}
    files |= {HERE / "kubectl-bst": "kubectl-bst", HERE.parent / "LICENSE": "LICENSE"}
    with (
        archive.open("wb") as raw,
        gzip.GzipFile("", "wb", fileobj=raw, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w") as tar,
    ):
        for path, name in sorted(files.items(), key=lambda item: item[1]):
            entry = tarfile.TarInfo(name)
            entry.size = path.stat().st_size
            entry.mode = 0o755 if name == "kubectl-bst" else 0o644
            with path.open("rb") as content:
                tar.addfile(entry, content)
    return hashlib.sha256(archive.read_bytes()).hexdigest()


def install(lib: Path) -> None:
    """Installs the plugin with what it needs into a folder, for any platform.

    Compiled modules are left out: each of these packages does without.
    """
    root = HERE.parent
    lines = (root / "constraints.txt").read_text("utf-8").splitlines(keepends=True)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as constraints:
        constraints.writelines(line for line in lines if not line.startswith("kubernetes=="))
        constraints.flush()
        chosen = ["--constraint", constraints.name, "--target", str(lib), CLIENT]
        subprocess.run([*pip, "--no-compile", *chosen, f"{root}[plugin]"], check=True)
    for compiled in [*lib.rglob("*.so"), *lib.rglob("*.pyd")]:
        compiled.unlink()


def main() -> None:
    """Writes both files."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as lib:
        install(Path(lib))
        sha256 = pack(Path(lib), folder / ARCHIVE)
    (folder / "bst.yaml").write_text(render_manifest(sha256), "utf-8")


if __name__ == "__main__":
    main()
