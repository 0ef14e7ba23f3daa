"""Seeded histories of a mutation table, beside a dict that has been told the same."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import getitem
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType

from calving.casting.table import TableConverter
from calving.errors import CommitRefusedError
from calving.iceberg.catalog import table_id
from calving.iceberg.conversion import DeleteReplacement
from calving.iceberg.maintenance import Maintenance
from calving.iceberg.resolution import RowChangeResolver
from calving.iceberg.rules import TableRules
from calving.iceberg.tables import Tables
from calving.iceberg.target import IcebergTarget
from calving.model.files import DELETES, KEYS, DataFile, FileContent, sink_name
from calving.model.offsets import TopicPartition
from calving.model.record_path import Evolution, Limits
from calving.model.tables import TableSpec
from calving.mutations.cache import KeyCache
from calving.protocol.commit import Admitted, Step
from calving.protocol.ledger import NO_LEDGER
from calving.protocol.ledger_key import LedgerKey
from calving.records.fields import table_schema
from calving.records.values import Values
from calving.writing.schemas import partition_spec
from calving.writing.table import TableWriter
from harness.structure import check

KEY = LedgerKey("control", "connect-x", "log-1")
SUMMARY = {"kafka.connect.commit-id": "c"}
LAYOUTS = {"flat": [], "by key": ["bucket(id, 4)"], "moving": ["g"], "evolved": []}
"""Partition terms; ``evolved`` gets others midway."""
SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "name", StringType(), required=False),
    NestedField(3, "g", LongType(), required=False),
    identifier_field_ids=[1],
)
Row = dict[str, Any]


@dataclass
class MutationTable:
    """Commits steps as a coordinator does, and keeps the rows that the table should have."""

    catalog: Catalog
    name: str
    ids: tuple[str, ...] = ("id",)
    order: str | None = None
    """The column by which the greatest wins."""
    equality: bool = False
    """Whether keys stay keys."""
    expected: dict[tuple[Any, ...], Row] = field(default_factory=dict)
    resolver: RowChangeResolver = field(init=False)

    def __post_init__(self) -> None:
        self.resolver = RowChangeResolver(self.order, KeyCache(1_000_000))

    @property
    def table(self) -> Table:
        return self.catalog.load_table(self.name)

    def step(
        self, rows: Sequence[Row], deleted: Sequence[Row] = (), inserts: Sequence[Row] = (), source: int | None = None
    ) -> Step:
        """Files as a task writes them: ``rows`` replace those of their keys, ``deleted`` go, ``inserts`` come.

        ``source``: the partition of the topic that the records are of.
        """
        spec = self.spec()
        files = self.write(spec, [*rows, *inserts])
        keys = [{name.split(".")[0]: row[name.split(".")[0]] for name in self.key_columns} for row in (*rows, *deleted)]
        for row in (*rows, *deleted):
            held = self.expected.get(self.key(row))
            if held is None or self.order is None or held[self.order] <= row[self.order]:
                self.expected.pop(self.key(row), None)
                if row in rows:
                    self.expected[self.key(row)] = row
        for row in inserts:
            self.expected[self.key(row)] = row
        of = frozenset() if source is None else frozenset({TopicPartition("s", source)})
        writer = sink_name(files[0].file_path) if files else None
        of_writer = writer.writer if writer is not None else ""
        return Step(files, (self.key_file(spec, keys, of_writer),) if keys else (), of)

    @property
    def key_columns(self) -> tuple[str, ...]:
        return self.ids if self.order is None else (*self.ids, self.order)

    def key(self, row: Row) -> tuple[Any, ...]:
        return tuple(reduce(getitem, name.split("."), row) for name in self.ids)

    def spec(self) -> TableSpec:
        tables = Tables(self.catalog, "iceberg", TableRules())
        tables.refresh([self.name])
        return tables.specs()[self.name]

    def write(self, spec: TableSpec, rows: Sequence[Row]) -> tuple[DataFile, ...]:
        converter = TableConverter(self.name, table_schema(spec.schema_json), Evolution(), {})
        converted = converter.convert(Values(list(rows), typed=False))
        writer = TableWriter(spec, 0, Limits())
        if rows:
            assert converted.rows is not None and not converted.bad, converted.bad
            writer.write(converted.rows)
        return tuple(writer.close())

    def key_file(self, spec: TableSpec, keys: Sequence[Row], writer: str = "") -> DataFile:
        schema = self.table.schema()
        converter = TableConverter(self.name, schema.select(*self.key_columns), Evolution(evolve=False), {})
        converted = converter.convert(Values(list(keys), typed=False))
        assert converted.rows is not None and not converted.bad, converted.bad
        path = f"{spec.location}/data/00000-0-{writer or uuid4()}-00001{DELETES if self.equality else KEYS}.parquet"
        with self.table.io.new_output(path).create() as out:
            pq.write_table(pa.Table.from_batches([converted.rows]), out)
            size = out.tell()
        ids = tuple(schema.find_field(name).field_id for name in self.ids)
        counts = {schema.find_field(name).field_id: len(keys) for name in self.key_columns}
        deletes = FileContent.EQUALITY_DELETES
        return DataFile(path, "PARQUET", len(keys), size, deletes, value_counts=counts, equality_ids=ids)

    def commit(self, *steps: Step, meanwhile: Sequence[Step] = ()) -> IcebergTarget:
        """One snapshot; ``meanwhile`` lands between the look at the table and the first attempt."""
        data = tuple(f for step in steps for f in step.data_files)
        deletes = tuple(f for step in steps for f in step.delete_files)
        admitted = Admitted(data, deletes, NO_LEDGER, steps=steps)
        target = IcebergTarget(
            self.catalog,
            table_id(self.name),
            "main",
            KEY,
            SUMMARY,
            resolver=None if self.equality else self.resolver,
            equality=self.equality,
        )
        for _ in range(5):
            state = target.load()
            if meanwhile:
                MutationTable(self.catalog, self.name, self.ids, equality=self.equality).commit(*meanwhile)
                meanwhile = ()
            try:
                target.attempt(state, admitted)
                check(self.table, self.equality)
                return target
            except CommitRefusedError:
                target.discard()
        raise AssertionError("every attempt was refused")

    def maintain(self, **given: Any) -> list[DeleteReplacement]:
        """Turn equality deletes into positions, as ``calving maintain`` does."""
        done = self.maintain_only(**given)
        if self.table.current_snapshot() is not None:
            check(self.table)
        return done

    def maintain_only(self, **given: Any) -> list[DeleteReplacement]:
        """The same, while others may add equality deletes."""
        return list(Maintenance(self.catalog, table_id(self.name), KEY, {"engine-name": "calving"}, **given).convert())

    def merge(self) -> list[DeleteReplacement]:
        """Merge position deletes, as ``calving maintain`` does."""
        done = list(Maintenance(self.catalog, table_id(self.name), KEY, {"engine-name": "calving"}).merge())
        check(self.table, self.equality)
        return done

    def rows(self) -> list[tuple[Any, ...]]:
        """The rows that should be in the table."""
        return sorted((tuple(row.values()) for row in self.expected.values()), key=repr)


def create(
    catalog: Catalog,
    layout: str | Sequence[str],
    version: int,
    order: str | None = None,
    schema: Schema = SCHEMA,
    ids: tuple[str, ...] = ("id",),
    file_format: str = "parquet",
) -> MutationTable:
    """A table that is partitioned by a layout, or by these terms."""
    catalog.create_namespace_if_not_exists("mutations")
    name = f"mutations.t{uuid4().hex}"
    spec = partition_spec(LAYOUTS[layout] if isinstance(layout, str) else layout, schema, name)
    properties = {"format-version": str(version), "write.format.default": file_format}
    catalog.create_table(name, schema, partition_spec=spec, properties=properties)
    return MutationTable(catalog, name, ids, order)


def play(
    table: MutationTable, layout: str, seed: int, commits: int, sources: int = 1, *, shared: bool = False
) -> list[IcebergTarget]:
    """Random updates and deletes of few keys; every few commits somebody else is faster. ``sources``: partitions of the
    topic, each with the keys of its own, or with ``shared`` ones. Returns what has made each commit.
    """
    chance = random.Random(seed)
    serial = 0
    made = []

    def rows(keys: Sequence[int]) -> list[Row]:
        nonlocal serial
        serial += 1
        return [{"id": key, "name": f"v{serial}", "g": chance.randrange(3)} for key in keys]

    for number in range(commits):
        if layout == "evolved" and number == commits // 2:
            _evolve(table.table)
        steps = []
        for _ in range(chance.choice([1, 1, 2, 3]) * (2 if shared else 1)):
            source = chance.randrange(sources) if sources > 1 else 0
            own = range(40) if shared else range(source, 40, sources)
            keys = chance.sample(own, chance.randrange(1, min(12, len(own))))
            cut = chance.randrange(len(keys) + 1)
            steps.append(table.step(rows(keys[:cut]), rows(keys[cut:]), source=source))
        foreign = [table.step([], inserts=rows([1000 * (seed + 1) + number]))] if number % 5 == 3 else []
        made.append(table.commit(*steps, meanwhile=foreign))
    return made


def _evolve(table: Table) -> None:
    with table.update_spec() as spec:
        spec.add_field("id", BucketTransform(3), "id_bucket").add_field("g", IdentityTransform(), "g_same")


def pyiceberg_rows(table: Table) -> list[tuple[Any, ...]]:
    return sorted((tuple(row.values()) for row in table.scan().to_arrow().to_pylist()), key=repr)


def live_counts(table: Table) -> Mapping[str, int]:
    """The totals in the summary of the head."""
    snapshot = table.current_snapshot()
    assert snapshot is not None and snapshot.summary is not None
    found = snapshot.summary.additional_properties
    return {name: int(value) for name, value in found.items() if name.startswith("total-")}


def superseded(table: MutationTable, *steps: Step) -> int:
    """How many rows one commit of these steps replaces."""
    counts = table.commit(*steps).counts
    assert counts is not None
    return counts.superseded
