"""Finds keys that several partitions of the topic change in one commit of equality deletes; the later wins (M2)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.table import Table

from calving.iceberg.key_files import by_id_columns, key_rows
from calving.model.files import DataFile
from calving.mutations.candidates import Pruning, new_files
from calving.mutations.columns import Reading, columns_of
from calving.mutations.keys import Keys
from calving.protocol.admission import Step

Overlaps = Mapping[int, set[tuple[int, bool]]]
"""By the number of a step, earlier ones of other partitions that it has a key in common with. True: it deletes rows of
these, and has to be in a later snapshot. False: they must not delete its rows, so it may be in no earlier snapshot.
"""


def overlaps(table: Table, steps: Sequence[Step]) -> Overlaps:
    """Of these steps. Reads the id columns of their files, if they are of several partitions."""
    found: dict[int, set[tuple[int, bool]]] = {}
    if len({step.source for step in steps if step.source}) < 2:
        return found
    for ids, key_files in by_id_columns(steps).items():
        for owner, changer in set(_of(table, steps, ids, key_files)):
            if owner != changer and _are_apart(steps[owner], steps[changer]):
                later, earlier = max(owner, changer), min(owner, changer)
                found.setdefault(later, set()).add((earlier, changer == later))
    return found


def _are_apart(one: Step, other: Step) -> bool:
    """Whether nothing else tells which of them comes first."""
    return bool(one.source and other.source) and not one.source & other.source


def _of(
    table: Table, steps: Sequence[Step], ids: tuple[int, ...], key_files: Sequence[Sequence[DataFile]]
) -> Iterator[tuple[int, int]]:
    """Pairs of a step that has a row, and a step that has its key."""
    metadata = table.metadata
    columns, mapping = columns_of(metadata.schema(), ids), table.name_mapping()
    reading = Reading(table.io, columns, tuple(mapping.root) if mapping is not None else ())
    keys = Keys(columns, [key_rows(reading, files) for files in key_files])
    changes = _Changes(keys, [keys.found_in(key_rows(reading, files)).keys for files in key_files])
    pruning = Pruning(keys, columns, metadata.specs())
    for file in new_files((step.data_files for step in steps), metadata.specs(), metadata.schema()).values():
        few = pruning.keys_of(file)
        if few is not None and file.step is not None:
            matched = few.found_in(reading.batches(file.path, file.file_format)).keys
            yield from ((file.step, changer) for changer in changes.of(matched, file.step))


class _Changes:
    """Which steps have which keys."""

    def __init__(self, keys: Keys, by_step: Sequence[pa.Array]) -> None:
        self._last = keys.last_steps
        steps = [pa.repeat(pa.scalar(step, pa.int32()), len(numbers)) for step, numbers in enumerate(by_step)]
        numbers = pa.concat_arrays([each.cast(pa.int32()) for each in by_step])
        counts = numbers.value_counts()
        self._several = counts.field("values").filter(pc.greater(counts.field("counts"), 1))
        are_several = pc.is_in(numbers, value_set=self._several)
        self._numbers, self._steps = numbers.filter(are_several), pa.concat_arrays(steps).filter(are_several)

    def of(self, matched: pa.Array, step: int) -> set[int]:
        """The steps that have one of these keys, of which ``step`` has rows."""
        are_several = pc.is_in(matched, value_set=self._several)
        found = set(self._last.take(matched.filter(pc.invert(are_several))).unique().to_pylist())
        several = matched.filter(are_several)
        if len(several):
            found |= set(self._steps.filter(pc.is_in(self._numbers, value_set=several)).unique().to_pylist())
        return found
