"""Equality deletes as they are: a snapshot for each step, all in one commit (E1).

An equality delete applies to what was there before its own snapshot. So what a step deletes and what it adds share one,
and the next step's come in another, built on the metadata that the one before leaves.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from pyiceberg.catalog import Catalog
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import (
    AddPartitionSpecUpdate,
    AssertTableUUID,
    TableRequirement,
    TableUpdate,
    update_table_metadata,
)

from calving.errors import TableTroubleError
from calving.iceberg.lineage import new_snapshot
from calving.iceberg.snapshot import SinkSnapshot
from calving.model.files import DataFile, PartitionTuple
from calving.protocol.admission import Step
from calving.protocol.ledger import COMMIT_ID


@dataclass(frozen=True, slots=True)
class Prepared:
    """What one commit of a catalog brings: its snapshots, the oldest first, and what it changes and requires."""

    snapshots: tuple[SinkSnapshot, ...]
    updates: tuple[TableUpdate, ...]
    requirements: tuple[TableRequirement, ...]


def layered(table: Table, summary: Mapping[str, str], branch: str, steps: Iterable[Step]) -> Prepared:
    """Snapshots of the steps; ``summary`` is the last one's: those below hold only a part of the commit."""
    spec_id = unpartitioned(table.metadata)
    if spec_id is None:
        raise TableTroubleError(f"table {'.'.join(table.name())} has no spec without partitions any more")
    layers = list(_joined(steps))
    below = {name: value for name, value in summary.items() if name == COMMIT_ID}
    snapshots: list[SinkSnapshot] = []
    updates: list[TableUpdate] = []
    requirements: tuple[TableRequirement, ...] = ()
    metadata = table.metadata
    for number, step in enumerate(layers, 1):
        view = copy.copy(table)
        view.metadata = metadata
        snapshot = new_snapshot(view, summary if number == len(layers) else below, branch)
        snapshot.add((*step.data_files, *(_everywhere(file, spec_id) for file in step.delete_files)))
        changes, required = snapshot.prepare()
        metadata = update_table_metadata(metadata, changes)
        snapshots.append(snapshot)
        updates += changes
        requirements = requirements or required  # the others are built on the first
    return Prepared(tuple(snapshots), tuple(updates), requirements)


def unpartitioned(metadata: TableMetadata) -> int | None:
    """The spec under which a delete applies to all partitions (E2): a row may have moved to any."""
    return next((spec_id for spec_id, spec in metadata.specs().items() if not spec.fields), None)


def add_unpartitioned(catalog: Catalog, table: Table) -> None:
    """Give the table such a spec, beside the one that rows are written with."""
    spec = PartitionSpec(spec_id=max(table.metadata.specs()) + 1)
    same = AssertTableUUID(uuid=table.metadata.table_uuid)
    catalog.commit_table(table, (same,), (AddPartitionSpecUpdate(spec=spec),))


def _joined(steps: Iterable[Step]) -> Iterator[Step]:
    """Steps that delete nothing come in with the one before."""
    last: Step | None = None
    for step in steps:
        if last is not None and step.delete_files:
            yield last
            last = step
        else:
            last = step if last is None else Step((*last.data_files, *step.data_files), last.delete_files)
    if last is not None:
        yield last


def _everywhere(file: DataFile, spec_id: int) -> DataFile:
    return replace(file, spec_id=spec_id, partition=PartitionTuple())
