"""What the pages show: their fenced blocks, the commands in them, and what a command prints."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[3]
PAGES = sorted(
    path
    for pattern in (
        *("README.md", "CONTRIBUTING.md", "SECURITY.md", "docs/**/*.md", "examples/*/*.md"),
        *("charts/*/*.md", "tests/*/*.md", "spark-plugin/**/*.md"),
    )
    for path in ROOT.glob(pattern)
)

FENCE = re.compile(r"^( *)```(\S*)[^\n]*\n(.*?)^\1```$", re.M | re.S)
_INLINE = re.compile(r"(?<!`)`([^`]+)`(?!`)")
_SUBSTITUTION = re.compile(r"\$\(([^()]*)\)")
_BETWEEN = {"&&", "||", "|", ";", "&"}
_SHELLS = {"console", "sh", "bash"}


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    page: Path
    line: int
    """Of its fence."""
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    @property
    def is_shell(self) -> bool:
        """Whether somebody types what it shows."""
        return self.language in _SHELLS


@dataclass(frozen=True)
class Command:
    """One program with its arguments, as a reader types it.

    Attributes:
        words: as the shell splits them; what the shell would substitute is left as it is.
        output: the lines that the page shows below it.
    """

    words: tuple[str, ...]
    output: str = ""


def read_blocks(page: Path) -> list[Block]:
    """The fenced blocks of a page, in order."""
    text = page.read_text("utf-8")
    found = []
    for match in FENCE.finditer(text):
        indent, language, content = match.groups()
        lines = [line.removeprefix(indent) for line in content.splitlines(keepends=True)]
        line = text.count("\n", 0, match.start()) + 1
        found.append(Block(page, line, language, "".join(lines)))
    return found


def read_prose(page: Path) -> str:
    """A page without its fenced blocks."""
    return FENCE.sub("", page.read_text("utf-8"))


def read_inline(page: Path) -> Iterator[str]:
    """What stands in back-ticks in the prose of a page, on one line each."""
    for code in _INLINE.findall(read_prose(page)):
        yield " ".join(code.split())


def read_commands(text: str, *, prompt: bool = True) -> list[Command]:
    r"""The commands of a shell block, each part of a pipe and each substitution for itself.

    Args:
        text: of the block.
        prompt: whether commands begin with `$ ` and other lines are output.

    >>> [c.words for c in read_commands("$ a b \\\n    --c=1 && d  # why\nout\n$ e | f\n")]
    [('a', 'b', '--c=1'), ('d',), ('e',), ('f',)]
    >>> read_commands("$ a $(b c)\nx\n")[1]
    Command(words=('a', '$(b c)'), output='x\n')
    """
    typed: list[tuple[str, list[str]]] = []
    continued = False
    for line in text.splitlines():
        if continued:
            typed[-1] = (typed[-1][0] + "\n" + line, [])
        elif line.startswith("$ ") or (not prompt and line.strip()):
            typed.append((line.removeprefix("$ "), []))
        elif typed:
            typed[-1][1].append(line)
        continued = bool(typed) and not typed[-1][1] and line.endswith("\\")
    found: list[Command] = []
    for given, output in typed:
        for inner in _SUBSTITUTION.findall(given):
            found += read_commands(inner, prompt=False)
        found += [
            Command(words, "".join(f"{line}\n" for line in output)) for words in _split(given)
        ]
    return found


def _split(given: str) -> Iterator[tuple[str, ...]]:
    # A substitution is one word, whatever is in it.
    given = _SUBSTITUTION.sub(lambda match: match[0].replace(" ", "\0"), given)
    lexer = shlex.shlex(given.replace("\\\n", " "), posix=True, punctuation_chars=";&|")
    lexer.whitespace_split = True
    lexer.commenters = "#"
    words: list[str] = []
    for word in (*lexer, ";"):
        if word in _BETWEEN:
            if words:
                yield tuple(words)
            words = []
        else:
            words.append(word.replace("\0", " "))
