"""Batches on a Spark engine, in a process of its own: ``python -m tests.engine.batch PROPERTIES [PATIENCE ...]``, a job on
every line."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest import mock

from pyiceberg.schema import Schema
from pyiceberg.table.sorting import SortField, SortOrder
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField

from calving.engine.interface import Engine, open_engine
from calving.engine.opening import OpeningEngine
from calving.engine.registry import Patience
from calving.errors import CalvingError
from calving.iceberg.resolution import RowChangeResolver
from calving.iceberg.rules import TableRules, TableSettings
from calving.model.files import DataFile
from calving.model.offsets import Range, Spans
from calving.model.tables import RowMutations
from harness.topic import Topic
from tests.tasks.conftest import Plane

ID = Schema(NestedField(1, "id", LongType()))


class Existing(Topic):
    def __init__(self, servers: str, name: str) -> None:
        self.servers, self.name = servers, name


def _scattered(spans: Spans, slots: int) -> list[list[Range]]:
    """A task for each partition."""
    return [[Range(tp.topic, tp.partition, s.start, s.end)] for tp, s in spans.items()]


def overlaps(files: Sequence[DataFile]) -> int:
    """How many files begin, by ``id``, before the one before them ends."""
    bounds = sorted(
        tuple(int.from_bytes((b or {})[1], "little", signed=True) for b in (file.lower_bounds, file.upper_bounds))
        for file in files
    )
    return sum(high >= low for (_, high), (low, _) in pairwise(bounds))


def take(engine: Engine, job: dict[str, Any]) -> dict[str, int]:
    """One batch of a topic into a table of its own, committed and read back."""
    plane, table = Plane(Path(job["folder"])), job["table"]
    plane.engine = engine
    plane.rules = TableRules(
        create_properties=table["properties"], defaults=TableSettings(tuple(table["partition_by"]))
    )
    if table.get("sorted"):
        order = SortOrder(SortField(1, transform=IdentityTransform()))
        plane.catalog.create_namespace("db")
        plane.catalog.create_table("db.t", ID, sort_order=order, properties=table["properties"])
    with mock.patch("calving.runtime.batch.cut", _scattered) if table["scattered"] else nullcontext():
        outcome = plane.take(Existing(job["servers"], job["topic"]))
    ids = plane.rows()["id"].to_pylist()
    ((files,),) = outcome.written.values()
    found = {"rows": len(ids), "distinct": len(set(ids)), "files": len(files.data_files)}
    if table.get("sorted"):
        found["overlaps"] = overlaps(files.data_files)
    return found


class Looking:
    """Tasks that search for keys, counted once they have an answer."""

    def __init__(self, engine: Engine) -> None:
        self._engine, self.slots, self.ended = engine, engine.slots, 0

    def map(self, function: Callable[[str], str], payloads: Sequence[str]) -> list[str]:
        found = self._engine.map(function, payloads)
        self.ended += len(found)
        return found


def change(engine: Engine, job: dict[str, Any]) -> dict[str, int]:
    """Two batches of a topic whose records replace each other by ``id``; tasks look for the keys of the second one in
    the files of the first one.
    """
    plane, beside = Plane(Path(job["folder"])), engine.for_other_jobs()
    assert beside is not None
    looking = Looking(beside)
    plane.engine, plane.resolver = engine, RowChangeResolver(tasks=lambda: looking)
    plane.resolver.lookups.rows_here = 0
    plane.rules = TableRules(defaults=TableSettings((), ("id",), mutations=RowMutations(upsert=True)))
    half = job["table"]["records"] // 2
    for span in ((0, half), (half, 2 * half)):
        plane.take(Existing(job["servers"], job["topic"]), dict.fromkeys(range(2), span))
    rows = plane.rows().to_pydict()
    found = {"rows": len(rows["id"]), "distinct": len(set(rows["id"])), "oldest": min(rows["n"])}
    return found | {"looked": int(looking.ended > 0)}


def main() -> None:
    patience = Patience(*map(float, sys.argv[2:]))
    settings = json.loads(sys.argv[1])
    # The start of a JVM on a busy machine takes its time.
    engine = OpeningEngine(lambda: open_engine("spark", "test", settings, patience), Patience(resources=600))
    try:
        _ = engine.slots  # now, so that an engine that does not start is an error before the first job
        for line in sys.stdin:
            try:
                job = json.loads(line)
                answer: dict[str, object] = {**(change if "records" in job["table"] else take)(engine, job)}
            except CalvingError as error:
                answer = {"error": f"{type(error).__name__}: {error}"}
            print(json.dumps(answer), flush=True)
    finally:
        engine.close()


if __name__ == "__main__":
    main()
