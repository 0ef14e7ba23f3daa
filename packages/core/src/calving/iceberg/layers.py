"""Commits equality deletes as they are: several snapshots, one on top of the other, in one commit (E1).

An equality delete applies to rows of earlier snapshots. So the deletes and the rows of one step share a snapshot. The
next step of the same source partitions gets another snapshot, built on the metadata of the previous one.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pyiceberg.catalog import Catalog
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.table import Table
from pyiceberg.table.update import (
    AddPartitionSpecUpdate,
    AddSnapshotUpdate,
    AssertTableUUID,
    TableRequirement,
    TableUpdate,
    update_table_metadata,
)

from calving.iceberg.ancestry import place_of
from calving.iceberg.key_files import EqualityDeletes, live_specs
from calving.iceberg.lineage import new_snapshot
from calving.iceberg.overlaps import Overlaps, overlaps
from calving.iceberg.snapshot import SinkSnapshot
from calving.iceberg.summary import engine
from calving.model.offsets import TopicPartition
from calving.protocol.admission import Step
from calving.protocol.ledger import COMMIT_ID
from calving.protocol.rollback import SnapshotPlace

_OF_EACH = {COMMIT_ID, *engine()}
"""The entries that each snapshot of a commit has."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """One commit for the catalog: its snapshots, the oldest first, its updates and its requirements."""

    snapshots: tuple[SinkSnapshot, ...]
    updates: tuple[TableUpdate, ...]
    requirements: tuple[TableRequirement, ...]
    unused: frozenset[str] = frozenset()
    """Files of the steps that are not in the commit."""

    @property
    def place(self) -> SnapshotPlace:
        """The last snapshot."""
        return [place_of(update.snapshot) for update in self.updates if isinstance(update, AddSnapshotUpdate)][-1]


def layered(table: Table, summary: Mapping[str, str], branch: str, steps: Iterable[Step]) -> Prepared:
    """The snapshots of the steps. Only the last one gets ``summary``, because each of the others holds only a part of
    the commit.
    """
    steps = list(steps)
    layers = _joined(steps, overlaps(table, steps))
    below = {name: value for name, value in summary.items() if name in _OF_EACH}
    snapshots: list[SinkSnapshot] = []
    updates: list[TableUpdate] = []
    requirements: tuple[TableRequirement, ...] = ()
    unused: list[str] = []
    metadata, specs = table.metadata, live_specs(table, branch)
    for number, step in enumerate(layers, 1):
        view = copy.copy(table)
        view.metadata = metadata
        snapshot = new_snapshot(view, summary if number == len(layers) else below, branch)
        deletes = EqualityDeletes(table, specs).of(step.delete_files)
        snapshot.add((*step.data_files, *deletes.files))
        snapshot.add_deletes((), deletes.written)
        changes, required = snapshot.prepare()
        metadata = update_table_metadata(metadata, changes)
        snapshots.append(snapshot)
        updates += changes
        unused += deletes.unused
        requirements = requirements or required  # the other snapshots are built on the first
        specs |= {file.spec_id for file in step.data_files}
    return Prepared(tuple(snapshots), tuple(updates), requirements, frozenset(unused))


def add_unpartitioned(catalog: Catalog, table: Table) -> None:
    """Add an unpartitioned spec to the table. The default spec, by which rows are written, stays."""
    spec = PartitionSpec(spec_id=max(table.metadata.specs()) + 1)
    same = AssertTableUUID(uuid=table.metadata.table_uuid)
    catalog.commit_table(table, (same,), (AddPartitionSpecUpdate(spec=spec),))


def _joined(steps: Iterable[Step], shared: Overlaps) -> list[Step]:
    """Join steps into as few snapshots as possible. Deletes of a source partition stay in a later snapshot than the
    rows that they delete.

    Steps of different source partitions share a snapshot if they have no key in common. If they have one, the later
    step wins (M2).
    """
    layers: list[list[Step]] = []
    last: dict[TopicPartition, int] = {}
    unknown: list[int] = []
    places: list[int] = []
    for number, step in enumerate(steps):
        # A step of an unknown source follows all earlier steps, and all later steps follow it.
        below = [last[tp] for tp in step.source & last.keys()] + unknown if step.source else range(len(layers))
        place = max((each + bool(step.delete_files) for each in below), default=0)
        place = max([place, *(places[earlier] + above for earlier, above in shared.get(number, ()))])
        places.append(place)
        if place == len(layers):
            layers.append([])
        layers[place].append(step)
        last.update(dict.fromkeys(step.source, place))
        if not step.source:
            unknown = [place]
    return [_one(layer) for layer in layers]


def _one(steps: Sequence[Step]) -> Step:
    data = tuple(file for step in steps for file in step.data_files)
    return Step(data, tuple(file for step in steps for file in step.delete_files))
