"""Commits equality deletes as they are: several snapshots, one on top of the other, in one commit (E1).

An equality delete applies to rows of earlier snapshots. So the deletes and the rows of one step share a snapshot. The
next step of the same source partitions gets another snapshot, built on the metadata of the previous one. Of a key that
several source partitions change in one commit, the later change wins (M2).
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.catalog import Catalog
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.table import Table
from pyiceberg.table.update import (
    AddPartitionSpecUpdate,
    AssertTableUUID,
    TableRequirement,
    TableUpdate,
    update_table_metadata,
)

from calving.iceberg.key_files import EqualityDeletes, live_specs
from calving.iceberg.lookups import with_same_keys
from calving.iceberg.manifests import partition_sources
from calving.iceberg.snapshot import SinkSnapshot, new_snapshot
from calving.iceberg.summary import engine
from calving.model.files import DataFile
from calving.model.offsets import TopicPartition
from calving.mutations.candidates import Pruning, by_id_columns, new_files
from calving.mutations.columns import ColumnReader, File, columns_of
from calving.mutations.keys import KEYS_AT_ONCE, KeyPart, parts
from calving.protocol.commit import Step
from calving.protocol.ledger_key import COMMIT_ID

_OF_EACH = {COMMIT_ID, *engine()}
"""The entries that each snapshot of a commit has."""
Overlaps = Mapping[int, set[tuple[int, bool]]]
"""By the number of a step: the earlier steps of other source partitions with which it has a key in common. True: the
step deletes rows of the earlier step, so it must be in a later snapshot. False: the earlier step must not delete the
step's rows, so the step must not be in an earlier snapshot.
"""


def overlaps(table: Table, steps: Sequence[Step], at_once: int = KEYS_AT_ONCE) -> Overlaps:
    """The overlaps of these steps. Reads the id columns of their files if the steps come from several source
    partitions.

    ``at_once``: about how many keys are held in memory.
    """
    earlier_steps: dict[int, set[tuple[int, bool]]] = {}
    if len({step.source for step in steps if step.source}) < 2:
        return earlier_steps
    for ids, key_files in by_id_columns(steps).items():
        for owner, changer in set(_of(table, steps, ids, key_files, at_once)):
            if owner != changer and _are_apart(steps[owner], steps[changer]):
                later, earlier = max(owner, changer), min(owner, changer)
                earlier_steps.setdefault(later, set()).add((earlier, changer == later))
    return earlier_steps


def _are_apart(one: Step, other: Step) -> bool:
    """Whether the two steps have no source partition in common, which would decide their order."""
    return bool(one.source and other.source) and not one.source & other.source


def _of(
    table: Table, steps: Sequence[Step], ids: tuple[int, ...], key_files: Sequence[Sequence[DataFile]], at_once: int
) -> Iterator[tuple[int, int]]:
    """Pairs of a step that adds a row, and a step that changes the row's key."""
    metadata = table.metadata
    columns, mapping = columns_of(metadata.schema(), ids), table.name_mapping()
    reading = ColumnReader(table.io, columns, tuple(mapping.root) if mapping is not None else ())
    files = new_files((step.data_files for step in steps), metadata.specs(), partition_sources(metadata)).values()
    by_step = [[(file.file_path, file.file_format) for file in of_step] for of_step in key_files]
    for part in parts(reading, len(columns), by_step, at_once):
        pruning = Pruning(part.keys, columns, metadata.specs())
        wanted = [(file, few) for file in files if (few := pruning.keys_of(file)) is not None]
        changers = _changers(part, reading, by_step)
        for group in with_same_keys(wanted):
            rows = [reading.batches(file.path, file.file_format) for file, _ in group]
            for (file, _), matches in zip(group, group[0][1].found_in_each(rows), strict=True):
                if file.step is not None:
                    its_changers = changers.take(matches.keys.unique()).flatten()
                    yield from ((file.step, changer) for changer in its_changers.unique().to_pylist())


def _changers(part: KeyPart, reading: ColumnReader, by_step: Sequence[Sequence[File]]) -> pa.ListArray:
    """For each key of the part: the steps that change it, according to the files of the part."""
    own = frozenset(part.files)
    changes = part.keys.found_in_each(reading.all_of(f for f in of_step if f in own) for of_step in by_step)
    keys = pa.concat_arrays([each.keys for each in changes])
    steps = pa.concat_arrays(
        [pa.repeat(pa.scalar(step, pa.int32()), len(each.keys)) for step, each in enumerate(changes)]
    )
    order = pc.sort_indices(keys)
    ends = pc.run_end_encode(keys.take(order)).run_ends  # each key of the part is in one of its files
    return pa.ListArray.from_arrays(pa.concat_arrays([pa.array([0], pa.int32()), ends]), steps.take(order))


@dataclass(frozen=True, slots=True)
class Prepared:
    """One commit for the catalog: its snapshots, the oldest first, its updates and its requirements."""

    snapshots: tuple[SinkSnapshot, ...]
    updates: tuple[TableUpdate, ...]
    requirements: tuple[TableRequirement, ...]
    unused: frozenset[str] = frozenset()
    """Files of the steps that are not in the commit."""


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
