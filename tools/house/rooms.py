"""The modules that a block of records passes: entered in a warm process, in the second block and the second commit.

``python -m tools.house.rooms json`` and ``upsert`` print the counts as JSON; ``--modules`` prints the modules, too, in
the order in which they are first entered.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Generator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, cast
from uuid import uuid4

import calving
from calving.converters import native
from calving.engine.interface import LocalEngine
from calving.iceberg.catalog import open_catalog
from calving.iceberg.resolution import RowChangeResolver
from calving.iceberg.rules import TableRules, TableSettings
from calving.iceberg.tables import Tables
from calving.iceberg.target import IcebergTarget
from calving.model.events import DataWritten, Envelope
from calving.model.offsets import Range, Span, TopicPartition
from calving.model.record_path import Evolution, RecordPath, RouteRule, Routing
from calving.model.tables import RowMutations
from calving.protocol.commit import CommitLoop
from calving.protocol.ledger import SourceProgress
from calving.protocol.ledger_key import LedgerKey
from calving.protocol.worker import BatchOutcome
from calving.runtime.batch import BatchRunner, ErrorLimits
from calving.source.reading import Block, Reader
from calving.tasks import task
from harness.blocks import Given

PATHS = {"json": None, "upsert": RowMutations(upsert=True, inserts="upsert")}
_ROWS = 1000
_ORDERS = TopicPartition("orders", 0)
_CORE = f"{Path(calving.__file__).parent}/"


class Trace:
    """Counts the modules of the core that are entered between ``start`` and ``stop``."""

    def __init__(self) -> None:
        self.modules: dict[str, None] = {}
        """In the order of their first call."""
        self.entries = 0
        """Calls from one module into another."""
        self.calls = 0
        self._stack: list[str | None] = []
        """For each open call its module; None for code that is not of the core."""

    def start(self) -> None:
        sys.setprofile(self._profile)

    def stop(self) -> None:
        sys.setprofile(None)

    @property
    def counts(self) -> dict[str, int]:
        return {"modules": len(self.modules), "entries": self.entries, "calls": self.calls}

    def _profile(self, frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            file = frame.f_code.co_filename
            module = file.removeprefix(_CORE) if file.startswith(_CORE) else None
            if module is not None:
                self.calls += 1
                self.modules[module] = None
                caller = next((each for each in reversed(self._stack) if each), None)
                self.entries += caller != module
            self._stack.append(module)
        elif event == "return" and self._stack:
            self._stack.pop()


class _Halves(Reader):
    """Reads each range as two blocks. ``trace`` starts with the second block."""

    def __init__(self, first_id: int | None) -> None:
        """``first_id``: the id of each block's first record goes up from here; None: it is the record's offset."""
        self.trace: Trace | None = None
        self._first_id = first_id

    def read(self, sources: Sequence[Range]) -> Generator[Block, None, None]:
        for source in sources:
            half = (source.end - source.start) // 2
            yield self._block(source, source.start, half, shift=0)
            if self.trace is not None:
                self.trace.start()
            yield self._block(source, source.start + half, half, shift=5)

    def _block(self, source: Range, start: int, count: int, shift: int) -> Block:
        first = start if self._first_id is None else self._first_id + shift
        return Given(source, start, [_record(first + i, i) for i in range(count)])


def _record(number: int, place: int) -> bytes:
    record = {"id": number, "ts": "2026-01-01T00:00:00Z", "name": f"n{place}", "amount": place + 0.5}
    return json.dumps(record).encode()


class _Commits:
    """Commits what batches have written, as a coordinator does."""

    def __init__(self, catalog: Any, resolver: RowChangeResolver | None) -> None:
        self._catalog, self._resolver = catalog, resolver
        self._key = LedgerKey("control", "connect-test", "log")
        self._end = 0

    def commit(self, outcome: BatchOutcome, trace: Trace | None = None) -> None:
        for table, steps in outcome.written.items():
            events = [DataWritten(uuid4(), table, step.data_files, step.delete_files) for step in steps]
            target = IcebergTarget(self._catalog, table.identifier, "main", self._key, {}, resolver=self._resolver)
            entries = [Envelope(0, self._end + 1 + i, event) for i, event in enumerate(events)]
            self._end += len(events) + 1
            if trace is not None:
                trace.start()
            loop = CommitLoop(target, self._key, 5, in_order=self._resolver is not None)
            loop.settle(entries, {0: self._end}, SourceProgress({}, {}))
            if trace is not None:
                trace.stop()


def measure(mutations: RowMutations | None, folder: str) -> tuple[Trace, Trace]:
    """The traces of one block of records on its way to data files, and of the commit of these files."""
    catalog = open_catalog("iceberg", {"type": "embedded", "warehouse": f"{folder}/warehouse"})
    settings = TableSettings(() if mutations else ("day(ts)",), ("id",) if mutations else (), mutations=mutations)
    tables = Tables(catalog, "iceberg", TableRules(create_properties={}, defaults=settings))
    path = RecordPath(
        {"bootstrap.servers": "none"}, Routing((RouteRule("db.t"),)), Evolution(create=True, evolve=True), transforms=()
    )
    reader = _Halves(0 if mutations else None)
    cast(Any, task).open_reader = lambda *_args, **_settings: reader
    runner = BatchRunner(LocalEngine(), tables, path, ErrorLimits(10_000, 1.0))
    commits = _Commits(catalog, RowChangeResolver(appends=False) if mutations else None)
    commits.commit(runner.run({_ORDERS: Span(0, _ROWS)}))
    block, commit = Trace(), Trace()
    reader.trace = block
    outcome = runner.run({_ORDERS: Span(_ROWS, 2 * _ROWS)})
    block.stop()
    commits.commit(outcome, commit)
    runner.close()
    return block, commit


def main() -> None:
    kind, *options = sys.argv[1:]
    with tempfile.TemporaryDirectory(prefix="calving-rooms-") as folder:
        block, commit = measure(PATHS[kind], folder)
    if "--modules" in options:
        print("block: ", *block.modules, file=sys.stderr)
        print("commit:", *commit.modules, file=sys.stderr)
    print(json.dumps({"native": native.absence() is None, "block": block.counts, "commit": commit.counts}))


if __name__ == "__main__":
    main()
