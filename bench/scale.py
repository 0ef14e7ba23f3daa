"""``make scale``: one commit cycle of sinks of several sizes, without a broker and a catalog."""

from __future__ import annotations

import json
from pathlib import Path

from rich.console import Console
from rich.table import Table

from harness.scale import Cost, Shape, measure

SHAPES = (
    Shape(1, 10_000, 1, 1),
    Shape(10, 10_000, 100, 10),
    Shape(1, 3_000, 500, 500),
    Shape(1_000, 10_000, 1, 1),
    Shape(1_000, 10_000, 5_000, 5),
)
_COORDINATOR = ("decode", "machine", "ledgers", "announce")


def columns(shape: Shape, cost: Cost) -> dict[str, str]:
    """A line of the report."""
    seconds, sizes = cost.seconds, cost.sizes
    headers = sizes["headers of workers"] + sizes["headers of the coordinator"]
    return {
        "workers; partitions; tables; of each": "; ".join(f"{number:,}" for number in shape),
        "entries": f"{cost.entries:,}",
        "all workers encode": f"{seconds['encode']:.2f}",
        **{step: f"{seconds[step]:.2f}" for step in _COORDINATOR},
        "coordinator": f"{sum(seconds[step] for step in _COORDINATOR):.2f}",
        "a worker reads": f"{seconds['one worker reads']:.3f}",
        "headers, kB": f"{headers // 1000:,}",
        "a snapshot's ledger, kB": f"{sizes['ledger of a snapshot'] // 1000:,}",
        "CommitComplete, kB": f"{sizes['CommitComplete'] // 1000:,}",
        "replay of 100,000 entries": f"{seconds['replay of 1,000 entries'] * 100:.0f}",
        "peak MiB": f"{cost.peak_mib:.0f}",
    }


def main() -> None:
    console, out = Console(width=220), Path("bench-results")
    costs = [(shape, measure(shape)) for shape in SHAPES]
    lines = [columns(shape, cost) for shape, cost in costs]
    table = Table(*lines[0], title="One commit cycle, CPU seconds")
    for line in lines:
        table.add_row(*line.values())
    console.print(table)
    out.mkdir(exist_ok=True)
    found = [{**shape._asdict(), **vars(cost)} for shape, cost in costs]
    (out / "scale.json").write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
