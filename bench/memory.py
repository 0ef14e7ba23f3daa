"""Memory of a task that writes many partitions, in each format."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from harness.memory import measure


def report(console: Console) -> list[dict[str, object]]:
    """10,000 partitions, and one for comparison."""
    table = Table(title="Memory of a task that writes 150,000 small records")
    for column in ("partitions", "format", "files", "peak MiB above the interpreter", "CPU seconds"):
        table.add_column(column)
    results = []
    for partitions, file_format in ((1, "parquet"), (10_000, "parquet"), (10_000, "orc"), (10_000, "avro")):
        result = measure(partitions, 150_000, file_format)
        results.append(result)
        names = ("partitions", "format", "files", "peak_mib", "cpu_seconds")
        table.add_row(*(str(result[name]) for name in names))
    console.print(table)
    return results
