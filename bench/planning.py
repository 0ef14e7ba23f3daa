"""Planning the compaction of a table with a million files: time and memory."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from harness.planning import measure

_FILES = 1_000_000


def report(console: Console) -> list[dict[str, float]]:
    """With one small file in fifty, and with small files only: all of these have to be remembered."""
    table = Table(title=f"A plan of a table with {_FILES:,} files")
    for column in ("small", "groups", "files in them", "seconds", "CPU seconds", "peak MiB"):
        table.add_column(column)
    results = []
    for small in (0.02, 1.0):
        result = {"small": small, **measure(_FILES, small)}
        results.append(result)
        names = ("small", "groups", "files", "seconds", "cpu_seconds", "peak_mib")
        table.add_row(*(str(result[name]) for name in names))
    console.print(table)
    return results
