"""The code in Rust: no module uses itself by way of others, and whoever writes ``unsafe`` says why it is safe."""

from __future__ import annotations

import re
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

SOURCES = sorted((Path(__file__).parents[2] / "packages" / "native" / "src").glob("*.rs"))
UNSAFE = re.compile(r"\bunsafe\s*(\{|impl\b|extern \"C\" \{)")


def uses(source: Path) -> set[str]:
    """The modules that a module imports."""
    named = re.findall(r"^use crate::(?:(\w+)|\{([^}]*)\})", source.read_text(), re.M)
    return {
        name.strip().split("::")[0] for one, several in named for name in (one, *several.split(",")) if name.strip()
    }


def test_no_module_uses_itself_by_way_of_others() -> None:
    assert [*TopologicalSorter({source.stem: uses(source) for source in SOURCES}).static_order()]


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.stem)
def test_each_unsafe_block_says_why_it_is_safe(source: Path) -> None:
    """Clippy's ``undocumented_unsafe_blocks`` says the same (`make security`), where there is a clippy."""
    lines = source.read_text().splitlines()
    for number, line in enumerate(lines):
        if UNSAFE.search(line) and not line.lstrip().startswith("//"):
            above = number
            while above and (lines[above - 1].lstrip().startswith("//") or not _begins(lines[above])):
                above -= 1
            assert "SAFETY:" in "\n".join(lines[above:number]), f"{source.name}:{number + 1}"


def _begins(line: str) -> bool:
    """Whether a statement begins here, not an argument or the rest of one."""
    return not line.lstrip().startswith((".", "&&", "||", "?", ")"))
