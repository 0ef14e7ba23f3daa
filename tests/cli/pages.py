"""Pages of the manual that a reader follows step by step, followed.

A fenced block with a title is a file. A bash block is run, and the text block that follows says what it prints: ``...``
stands for anything, alone on a line for any lines, blanks for any blanks, and a line that begins with ``error:`` says
that the last command fails. Python blocks without a title
are the cells of one notebook. A block after ``<!-- not run: why -->`` is left out.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from harness.duckdb_extensions import extensions

DOCS = Path(__file__).parents[2] / "docs"
_BLOCK = re.compile(r"( *<!-- not run: [^>]+ -->\n)?^( *)```(\w+)([^\n]*)\n(.*?)^ *```$", re.DOTALL | re.MULTILINE)
_INSTALL = "INSTALL iceberg; LOAD iceberg"


@dataclass(frozen=True)
class Block:
    kind: str
    title: str | None
    text: str
    runs: bool


def blocks(page: str) -> Iterator[Block]:
    for skipped, _, kind, rest, text in _BLOCK.findall((DOCS / page).read_text()):
        title = re.search(r'title="([^"]+)"', rest)
        yield Block(kind, title[1] if title else None, textwrap.dedent(text), not skipped)


def modules(page: str) -> list[Block]:
    """The Python files that a page has its reader write."""
    return [block for block in blocks(page) if block.title is not None and block.title.endswith(".py")]


def follow(page: str, folder: Path, addresses: Mapping[str, str]) -> int:
    """Do what the page says, in ``folder``, which is this process's as well; how many outputs were compared. The page's
    addresses stand for others. DuckDB's extensions are those of its packages, not downloaded.
    """
    compared = 0
    said: str | None = None
    code = 0
    cells: dict[str, object] = {}
    for block in (b for b in blocks(page) if b.runs):
        text = block.text.replace(_INSTALL, "; ".join(f"LOAD '{e}'" for e in extensions()))
        for printed, actual in addresses.items():
            text = text.replace(printed, actual)
        if block.title is not None:
            (folder / block.title).write_text(text)
        elif block.kind == "bash":
            assert code == 0, said
            said, code = _bash(text, folder)
        elif block.kind == "python":
            with contextlib.redirect_stdout(io.StringIO()) as output:
                exec(compile(text, page, "exec"), cells)
            said = output.getvalue()
        elif block.kind == "text" and said is not None:
            assert matches(text, said), f"{page} says:\n{text}\nand there is:\n{said}"
            assert (code != 0) == (re.search("^error:", text, re.MULTILINE) is not None), said
            compared, said, code = compared + 1, None, 0
    assert code == 0, said
    return compared


def _bash(text: str, folder: Path) -> tuple[str, int]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-e", "-c", text],
        cwd=folder,
        env={**os.environ, "PATH": path, "VIRTUAL_ENV": sys.prefix, "COLUMNS": "100"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=400,
        check=False,
    )
    return done.stdout, done.returncode


def matches(expected: str, said: str) -> bool:
    """Whether a text is as a page says: ``...`` stands for anything."""
    pattern = "".join(
        "(?:.*\n)?" if line == "..." else ".*".join(map(re.escape, line.split("..."))) + "\n"
        for line in _lines(expected)
    )
    return re.fullmatch(pattern, "\n".join(_lines(said)) + "\n", re.DOTALL) is not None


def _lines(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.strip().splitlines()]
