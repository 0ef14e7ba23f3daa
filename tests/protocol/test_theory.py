"""The worked example of ``docs/explanation/theory.md``: its numbers are those that the code comes to."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

from calving.model.events import DataComplete, DataWritten, Envelope, TableReference
from calving.model.files import DataFile
from calving.model.offsets import Span, TopicPartition
from calving.protocol.buffer import Buffer
from calving.protocol.commit import admit
from calving.protocol.ledger import NO_LEDGER, Ledger
from calving.protocol.recovery import recovery

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "theory.md"
COMMIT = UUID(int=1)
SOURCE = TopicPartition("orders", 0)
ORDERS, REFUNDS = (TableReference("iceberg", ("db",), name) for name in ("orders", "refunds"))


def publication(first: int, start: int, end: int, *tables: TableReference) -> Iterator[Envelope]:
    """A file for each table, from control offset ``first`` on, of source offsets ``start`` to ``end``."""
    spans = {SOURCE: (Span(start, end),)}
    for number, table in enumerate(tables):
        file = DataFile(f"{table.name}-{start}", "PARQUET", 1, 1)
        yield Envelope(0, first + number, DataWritten(COMMIT, table, (file,)), spans)
    yield Envelope(0, first + len(tables), DataComplete(COMMIT), spans, parts=len(tables))


class World:
    """A coordinator's buffer over two tables."""

    def __init__(
        self, position: dict[int, int] | None = None, ledgers: dict[TableReference, Ledger] | None = None
    ) -> None:
        self.buffer = Buffer(position)
        self.ledgers = {ORDERS: NO_LEDGER, REFUNDS: NO_LEDGER} | (ledgers or {})

    def hear(self, *publications: Iterator[Envelope]) -> None:
        for entries in publications:
            for entry in entries:
                self.buffer.hear(entry)

    def commit(self, *tables: TableReference) -> list[list[str]]:
        """The files that each table gets."""
        read, progress, heard = self.buffer.whole(), self.buffer.progress(), self.buffer.tables()
        got = []
        for table in tables:
            admitted = admit(heard.get(table.identifier, ()), read, progress, self.ledgers[table])
            got.append([file.file_path for file in admitted.data_files])
            if admitted:
                self.ledgers[table] = admitted.ledger
        for table in tables:
            self.buffer.settle(table.identifier, read)
        return got


def told(step: int) -> dict[TableReference, Ledger]:
    """The tables' ledgers after a step, as the page shows them."""
    _, _, section = PAGE.read_text().partition(f"### Step {step}:")
    rows = re.findall(r"^\| `(\w+)` \| (\d*) ?\| (\d*) ?\| (\d*) ?\| \|$", section.partition("\n### ")[0], re.MULTILINE)
    assert len(rows) == 2
    return {
        TableReference("iceberg", ("db",), table): Ledger(
            {0: int(control)}, {SOURCE: int(source)}, {SOURCE: int(settled)}
        )
        if control
        else NO_LEDGER
        for table, control, source, settled in rows
    }


def test_the_worked_example_is_what_the_code_does() -> None:
    world = World({0: 10})
    world.hear(publication(10, 0, 300, ORDERS, REFUNDS))
    world.commit(ORDERS)
    assert world.ledgers == told(1)
    world.hear(publication(14, 300, 500, ORDERS))
    world.commit(ORDERS)
    assert world.ledgers == told(2)
    assert world.buffer.position() == {0: 10}
    world = World(world.buffer.position(), world.ledgers)
    world.hear(publication(10, 0, 300, ORDERS, REFUNDS), publication(14, 300, 500, ORDERS))
    assert world.commit(ORDERS, REFUNDS) == [[], ["refunds-0"]]
    assert world.ledgers == told(3)
    assert world.buffer.position() == {0: 16}
    world.hear(publication(17, 500, 700, ORDERS, REFUNDS))
    world.commit(ORDERS, REFUNDS)
    assert world.ledgers == told(4)
    world.hear(publication(21, 700, 900, ORDERS, REFUNDS))
    world.commit(ORDERS)
    assert world.ledgers == told(5)
    plan = recovery({table.name: ledger for table, ledger in world.ledgers.items()}, complete=True)
    assert plan.positions == {SOURCE: 700}
    assert plan.held == {"orders": {SOURCE: (Span(700, 900),)}, "refunds": {}}
