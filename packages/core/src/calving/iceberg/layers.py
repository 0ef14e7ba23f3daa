"""Writes equality deletes: one snapshot for each step, all in one commit to the catalog (E1).

An equality delete applies to rows of earlier snapshots. So the deletes and the rows of one step share a snapshot. The
next step of the same source partitions gets another snapshot, built on the metadata of the previous one. Of a key that
several source partitions change in one commit, the later change wins (M2). Key files become deletes in the partitions
of their keys, or in all partitions (E2).
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestContent
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema, prune_columns
from pyiceberg.table import Table
from pyiceberg.table.update import TableRequirement, TableUpdate, update_table_metadata

from calving.errors import OtherSettingsError, TableTroubleError
from calving.iceberg.landing import unpartitioned
from calving.iceberg.lineage import new_snapshot
from calving.iceberg.locations import carried
from calving.iceberg.lookups import with_same_keys
from calving.iceberg.manifests import partition_sources, read_manifest_list
from calving.iceberg.snapshot import SinkSnapshot
from calving.iceberg.summary import engine
from calving.model.files import DELETES, EVERY_ROW, DataFile, FileContent, PartitionTuple
from calving.model.offsets import TopicPartition
from calving.model.record_path import Limits
from calving.model.tables import TableSpec
from calving.mutations.candidates import Pruning, by_id_columns, new_files, tells_partition
from calving.mutations.columns import ColumnReader, File, columns_of
from calving.mutations.keys import KEYS_AT_ONCE, KeyPart, parts
from calving.protocol.commit import Step
from calving.protocol.ledger_key import COMMIT_ID
from calving.records.fields import arrow_schema
from calving.writing.changes import optional
from calving.writing.key_files import key_file_properties
from calving.writing.table import TableWriter

_OF_EACH = {COMMIT_ID, *engine()}
"""The entries that each snapshot of a commit has."""
Overlaps = Mapping[int, set[tuple[int, bool]]]
"""By the number of a step: the earlier steps of other source partitions with which it has a key in common. True: the
step deletes rows of the earlier step, so it must be in a later snapshot. False: the earlier step must not delete the
step's rows, so the step must not be in an earlier snapshot.
"""
_FIELD_ID = b"PARQUET:field_id"


@dataclass(frozen=True, slots=True)
class Deletes:
    """The equality deletes of a snapshot. ``written``: the paths of those that were written for it. ``unused``: the
    paths of key files that the snapshot does not need.
    """

    files: tuple[DataFile, ...]
    written: tuple[str, ...]
    unused: tuple[str, ...]


class EqualityDeletes:
    """Makes deletes of key files, for one head of a table."""

    def __init__(self, table: Table, live: Collection[int]) -> None:
        """``live``: the ids of the specs of the live data files below these deletes.

        :raises TableTroubleError: the table has no spec for deletes that apply to all partitions.
        """
        specs = table.metadata.specs()
        self._table, self._live = table, [specs[spec_id] for spec_id in sorted(live)]
        everywhere = unpartitioned(specs.values())
        if everywhere is None:
            raise TableTroubleError(f"table {'.'.join(table.name())} has no spec without partitions any more")
        self._everywhere = everywhere.spec_id

    def of(self, key_files: Iterable[DataFile]) -> Deletes:
        """The deletes for these key files. A delete applies to all partitions, because a row may have moved to any
        partition; unless the id columns determine the row's partition.
        """
        files: list[DataFile] = []
        written: list[str] = []
        unused: list[str] = []
        for file in key_files:
            divided = self._divided(file) if self._is_told_by(file.equality_ids or ()) else None
            if divided is None:
                files.append(replace(file, spec_id=self._everywhere, partition=PartitionTuple()))
                continue
            files += divided
            written += (made.file_path for made in divided)
            unused.append(file.file_path)
        return Deletes(tuple(files), tuple(written), tuple(unused))

    def _is_told_by(self, ids: Collection[int]) -> bool:
        return all(tells_partition(spec, ids) for spec in self._live)

    def _divided(self, file: DataFile) -> list[DataFile] | None:
        """The file's keys divided by partition, once for each spec; None if the file was written for other columns."""
        whole, ids = self._table.metadata.schema(), set(file.equality_ids or ())
        schema = optional(prune_columns(whole, ids), ids)
        made: list[DataFile] = []
        for spec in self._live:
            writer = TableWriter(self._as_written(schema, spec), 0, Limits(), kind=DELETES)
            for rows in _read(self._table.io, file.file_path, arrow_schema(schema)):
                if rows is None:
                    writer.discard()
                    return None
                writer.write(rows)
            made += writer.close()
        return [
            replace(each, content=FileContent.EQUALITY_DELETES, equality_ids=file.equality_ids, sort_order_id=None)
            for each in made
        ]

    def _as_written(self, schema: Schema, spec: PartitionSpec) -> TableSpec:
        table = self._table
        return TableSpec(
            ".".join(table.name()),
            schema.model_dump_json(),
            spec.model_dump_json(),
            table.metadata.location,
            key_file_properties(table.metadata.properties),
            carried(table.io),
        )


def live_specs(table: Table, branch: str) -> set[int]:
    """The ids of the specs of the branch's live data files."""
    head = table.metadata.snapshot_by_name(branch)
    return {
        manifest.partition_spec_id
        for manifest in (read_manifest_list(table.io, head.manifest_list) if head is not None else ())
        if manifest.content == ManifestContent.DATA and (manifest.has_added_files() or manifest.has_existing_files())
    }


def _read(io: FileIO, path: str, schema: pa.Schema) -> Iterator[pa.RecordBatch | None]:
    """The rows of a key file in this schema; None for a batch that does not have its columns."""
    with io.new_input(path).open() as stream, pq.ParquetFile(stream) as file:
        for batch in file.iter_batches(use_threads=False):
            yield _fitted(batch, schema)


def _fitted(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch | None:
    """The schema's columns, found by field id: since the file was written, a column may have been renamed or
    widened.
    """
    given = zip(batch.schema, batch.columns, strict=True)
    by_id = {(field.metadata or {}).get(_FIELD_ID): column for field, column in given}
    try:
        columns = [_cast(by_id[(field.metadata or {})[_FIELD_ID]], field.type) for field in schema]
    except (KeyError, pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):
        return None
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _cast(column: pa.Array, kind: pa.DataType) -> pa.Array:
    return column if column.type == kind else column.cast(kind)


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

    :raises OtherSettingsError: a file deletes all rows, which no equality delete does; or it has partial rows.
    """
    steps = list(steps)
    if any(file.is_partial for step in steps for file in step.delete_files):
        raise OtherSettingsError(
            f"table {'.'.join(table.name())}: a file for it has rows without all values (on-unavailable-value or"
            " unset-fields = keep), and this worker's settings have row-deletes = equality: let a worker with the"
            " former settings lead until it has committed the file"
        )
    if any(file.equality_ids == EVERY_ROW for step in steps for file in step.delete_files):
        raise OtherSettingsError(
            f"table {'.'.join(table.name())}: a file for it deletes all rows (on-truncate = delete), and this worker's"
            " settings have row-deletes = equality: let a worker with the former settings lead until it has committed"
            " the file"
        )
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
