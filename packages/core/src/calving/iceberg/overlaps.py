"""Finds keys that several source partitions change in one commit of equality deletes. The later change wins (M2)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.table import Table

from calving.iceberg.key_files import by_id_columns
from calving.iceberg.lookups import with_same_keys
from calving.iceberg.schemas import partition_sources
from calving.model.files import DataFile
from calving.mutations.candidates import Pruning, new_files
from calving.mutations.columns import ColumnReader, File, columns_of
from calving.mutations.parts import KEYS_AT_ONCE, KeyPart, parts
from calving.protocol.admission import Step

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
