"""Reads the keys of key files in parts, so that memory is bounded however many keys a commit has."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from calving.mutations.columns import ColumnReader, File
from calving.mutations.keys import ChangedKeys

KEYS_AT_ONCE = 2_000_000
_BYTES_AT_ONCE = 1024**3
"""The keys of a part are at most about as large. Arrow's arrays of text hold 2 GiB."""


@dataclass(frozen=True, slots=True)
class KeyPart:
    """Some of the keys, and the files from which they were read. These files may have other keys, too."""

    keys: ChangedKeys
    files: tuple[File, ...]


def parts(
    reading: ColumnReader, ids: int, steps: Sequence[Sequence[File]], at_once: int = KEYS_AT_ONCE
) -> Iterator[KeyPart]:
    """The keys in the files of each step, in the order of the steps, about ``at_once`` at a time; fewer large ones.

    ``ids``: how many of the columns identify a row. A key that several steps change may be in several parts.
    """
    columns = reading.columns[:ids]
    held: list[list[pa.RecordBatch]] = [[] for _ in steps]
    files: dict[File, None] = {}
    count = size = 0
    for step, files_of_step in enumerate(steps):
        for file in files_of_step:
            for batch in reading.batches(*file):
                held[step].append(batch)
                files[file] = None
                count += batch.num_rows
                size += batch.nbytes
                if count >= at_once or size >= _BYTES_AT_ONCE:
                    yield KeyPart(ChangedKeys(columns, held), tuple(files))
                    held, files, count, size = [[] for _ in steps], {}, 0, 0
    if count:
        yield KeyPart(ChangedKeys(columns, held), tuple(files))
