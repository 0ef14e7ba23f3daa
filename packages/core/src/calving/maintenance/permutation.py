"""Where rows have gone that are not in their order any more: a file beside the new ones, until these are committed."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io import FileIO

from calving.errors import TableTroubleError
from calving.iceberg.locations import delete_orphans
from calving.storage_errors import described

ROWS = "-rows"
"""The ending of the name."""
_SCHEMA = pa.schema([pa.field("row", pa.int64(), nullable=False)])


class PermutationWriter:
    """Writes a stream of Arrow: the number of each row among the rows that were taken, in the order of the new files.
    It has eight bytes a row.
    """

    def __init__(self, io: FileIO, path: str) -> None:
        """:raises Exception: the storage failed, with the storage's own error; so may all others."""
        self._io, self.path = io, path
        self._out = io.new_output(path).create()
        self._stream = pa.ipc.new_stream(self._out, _SCHEMA)

    def add(self, rows: pa.Array) -> None:
        """The numbers of the next rows."""
        self._stream.write_batch(pa.RecordBatch.from_arrays([rows], schema=_SCHEMA))

    def close(self) -> None:
        """The file is whole."""
        self._stream.close()
        self._out.close()

    def discard(self) -> None:
        """Give up, and delete the file, ignoring errors."""
        for end in (self._stream.close, self._out.close):
            with suppress(Exception):
                end()
        delete_orphans(self._io, [self.path])


def places(io: FileIO, path: str, rows: Sequence[int]) -> list[int]:
    """The places of the rows with these numbers among the rows of all new files, in order. One block of the file at a
    time is in memory.

    :raises TableTroubleError: the file cannot be read, or does not have them.
    """
    wanted = pa.array(rows, pa.int64())
    found: list[int] = []
    start = 0
    try:
        with io.new_input(path).open() as source, pa.ipc.open_stream(source) as stream:
            for batch in stream:
                hits = pc.indices_nonzero(pc.is_in(batch.column(0), value_set=wanted))
                found += pc.add(hits.cast(pa.int64()), start).to_pylist()
                start += batch.num_rows
    except Exception as error:  # a storage may raise anything
        raise TableTroubleError(f"{_file(path)} cannot be read: {described(error)}") from error
    if len(found) != len(wanted):
        raise TableTroubleError(f"{_file(path)} lacks {len(wanted) - len(found)} of them")
    return found


def _file(path: str) -> str:
    return f"file {path}, which says where rows are now,"
