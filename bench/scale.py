"""``make scale``: one commit cycle of sinks of many sizes, without a broker and a catalog; and a model of its cost."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from harness.scale import Cost, Shape, measure

SHAPES = (
    Shape(1, 1_000, 1, 1),
    Shape(1, 10_000, 1, 1),
    Shape(10, 10_000, 100, 10),
    Shape(1, 3_000, 500, 500),
    Shape(1_000, 10_000, 1, 1),
    Shape(1_000, 10_000, 5_000, 5),
)
_COORDINATOR = ("decode", "machine", "ledgers", "announce")
_FEW, _MANY = Shape(1, 1_000, 20, 20), Shape(1, 1_000, 500, 500)


class Model(NamedTuple):
    """The coordinator's CPU seconds in a cycle: for each partition of the sink, for each table that is committed with
    its entries, and for each partition of each table, whose ledger is a text of its own.
    """

    of_partition: float
    of_table: float
    of_both: float

    @staticmethod
    def fitted() -> Model:
        """From four small sinks, each in a process of its own."""
        one, large = coordinator(measure(SHAPES[0])), coordinator(measure(SHAPES[1]))
        of_partition = (large - one) / (SHAPES[1].partitions - SHAPES[0].partitions)
        small = Shape(1, 12, _MANY.tables, _MANY.of_each)
        of_table = coordinator(measure(small)) / small.tables
        few, many = coordinator(measure(_FEW)), coordinator(measure(_MANY))
        further = (many - few) / (_MANY.tables - _FEW.tables) - of_table
        return Model(of_partition, of_table, max(0.0, further) / _MANY.partitions)

    def seconds(self, shape: Shape) -> float:
        """The cost of a cycle of a sink of this size."""
        entries = shape.workers * shape.of_each
        tables = min(shape.tables, entries)
        of_entries = max(entries, shape.workers) * self.of_table
        return self.of_partition * shape.partitions + of_entries + self.of_both * tables * shape.partitions


def coordinator(cost: Cost) -> float:
    """The coordinator's CPU seconds."""
    return sum(cost.seconds.get(step, 0.0) for step in _COORDINATOR)


def report(console: Console, costs: Iterable[tuple[Shape, Cost]], model: Model) -> None:
    """Print a line for each sink."""
    table = Table(title="One commit cycle; CPU seconds, kB, MiB; recovery: seconds for 100,000 entries")
    columns = ("workers; partitions; tables; of each", "entries", "workers encode", *_COORDINATOR, "coordinator, by")
    for column in (*columns, "the model", "a worker reads", "headers", "ledger", "CommitComplete", "peak", "recovery"):
        table.add_column(column)
    for shape, cost in costs:
        seconds, sizes = cost.seconds, cost.sizes
        headers = sizes["headers of workers"] + sizes["headers of the coordinator"]
        table.add_row(
            "; ".join(f"{number:,}" for number in shape),
            f"{cost.entries:,}",
            *(f"{seconds[step]:.2f}" for step in ("encode", *_COORDINATOR)),
            f"{coordinator(cost):.2f}",
            f"{model.seconds(shape):.2f}",
            f"{seconds['one worker reads']:.3f}",
            *(f"{size // 1000:,}" for size in (headers, sizes["ledger of a snapshot"], sizes["CommitComplete"])),
            f"{cost.peak_mib:.0f}",
            f"{seconds['replay of 1,000 entries'] * 100:.0f}",
        )
    console.print(table)


def main() -> None:
    console, model = Console(width=200), Model.fitted()
    costs = [(shape, measure(shape)) for shape in SHAPES]
    report(console, costs, model)
    out = Path("bench-results")
    out.mkdir(exist_ok=True)
    found = [{**shape._asdict(), **vars(cost), "model": model.seconds(shape)} for shape, cost in costs]
    (out / "scale.json").write_text(json.dumps({"model": model._asdict(), "cycles": found}, indent=1))


if __name__ == "__main__":
    main()
