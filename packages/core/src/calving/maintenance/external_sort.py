"""Sorts more rows than memory holds. Arrow sorts; a file on the local disk holds sorted runs until they are merged."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import IO

import pyarrow as pa
import pyarrow.compute as pc

from calving.errors import TableTroubleError

_BLOCKS_OF_RUN = 128
"""A run is written in so many blocks. One block of each run is in memory while runs are merged, so the blocks of a
hundred runs are as large as one run.
"""
Keyed = tuple[pa.RecordBatch, pa.RecordBatch]
"""Sort keys, and the rows that have them."""


class ExternalSort:
    """Takes rows with their keys, and gives them back in the order of the keys, of which no two are equal. About three
    times ``at_once`` bytes are in memory, and those of one block of each run.
    """

    def __init__(self, sort_keys: Sequence[tuple[str, str]], at_once: int) -> None:
        """``sort_keys``: columns of the keys, with Arrow's directions."""
        self._sort_keys, self._at_once = [*sort_keys], at_once
        self._waiting: list[Keyed] = []
        self._bytes = 0
        self._runs: _Runs | None = None

    def add(self, keys: pa.RecordBatch, rows: pa.RecordBatch) -> None:
        """Take rows.

        :raises TableTroubleError: they do not fit on the local disk.
        """
        self._waiting.append((keys, rows))
        self._bytes += _size((keys, rows))
        if self._bytes >= self._at_once:
            self._write_run()

    def sorted(self) -> Iterator[Keyed]:
        """All the rows, in order.

        :raises TableTroubleError: as ``add``.
        """
        if self._runs is None:
            if self._waiting:
                yield self._sorted(self._waiting)
            return
        self._write_run()
        yield from self._merged(self._runs)

    def close(self) -> None:
        """Give the space on the disk back."""
        if self._runs is not None:
            self._runs.close()

    def _write_run(self) -> None:
        if not self._waiting:
            return
        keys, rows = self._sorted(self._waiting)
        self._waiting, self._bytes = [], 0
        with _writing():
            if self._runs is None:
                self._runs = _Runs(keys.schema, rows.schema)
            self._runs.write(keys, rows)

    def _merged(self, runs: _Runs) -> Iterator[Keyed]:
        """The blocks are read by their first keys. So all rows below the first key of the next block have been read."""
        with _writing():
            firsts, read = runs.end()
        numbers = pc.sort_indices(firsts, sort_keys=self._sort_keys).to_pylist()
        pool: list[Keyed] = []
        fresh = 0
        for number, following in zip(numbers, [*numbers[1:], None], strict=True):
            pool.append(read(number))
            fresh += _size(pool[-1])
            if fresh >= self._at_once and following is not None:
                below, rest = self._divided(pool, firsts.slice(following, 1))
                yield below
                pool, fresh = [rest], 0
        yield self._sorted(pool)

    def _sorted(self, parts: Sequence[Keyed]) -> Keyed:
        keys, rows = _joined(parts)
        order = pc.sort_indices(keys, sort_keys=self._sort_keys)
        return keys.take(order), rows.take(order)

    def _divided(self, parts: Sequence[Keyed], bound: pa.RecordBatch) -> tuple[Keyed, Keyed]:
        """The rows below this key in order, and the other rows."""
        keys, rows = _joined(parts)
        order = pc.sort_indices(pa.concat_batches([keys, bound]), sort_keys=self._sort_keys)
        (place,) = pc.indices_nonzero(pc.equal(order, keys.num_rows)).to_pylist()
        below, rest = order.slice(0, place), order.slice(place + 1)
        return (keys.take(below), rows.take(below)), (keys.take(rest), rows.take(rest))


class _Runs:
    """Blocks of sorted rows in a file without a name, which ends with this process."""

    def __init__(self, keys: pa.Schema, rows: pa.Schema) -> None:
        self._keys, self._rows = keys, rows
        self._both = pa.schema([*keys, *rows])
        self._file: IO[bytes] = tempfile.TemporaryFile(prefix="calving-sort-")  # noqa: SIM115 - closed by ``close``
        self._writer = pa.ipc.new_file(self._file, self._both, options=pa.ipc.IpcWriteOptions(compression="lz4"))
        self._firsts: list[pa.RecordBatch] = []

    def write(self, keys: pa.RecordBatch, rows: pa.RecordBatch) -> None:
        block = max(1, rows.num_rows // _BLOCKS_OF_RUN)
        starts = range(0, rows.num_rows, block)
        for start in starts:
            columns = [*keys.slice(start, block).columns, *rows.slice(start, block).columns]
            self._writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=self._both))
        self._firsts.append(keys.take(pa.array(starts, pa.int64())))

    def end(self) -> tuple[pa.RecordBatch, Callable[[int], Keyed]]:
        """The first key of each block, and what reads a block. Nothing more is written."""
        self._writer.close()
        reader = pa.ipc.open_file(self._file)

        def read(number: int) -> Keyed:
            columns, count = reader.get_batch(number).columns, len(self._keys)
            return (
                pa.RecordBatch.from_arrays(columns[:count], schema=self._keys),
                pa.RecordBatch.from_arrays(columns[count:], schema=self._rows),
            )

        return pa.concat_batches(self._firsts), read

    def close(self) -> None:
        with suppress(OSError):  # the disk may be full
            self._file.close()


@contextmanager
def _writing() -> Iterator[None]:
    """:raises TableTroubleError: the local disk takes no more."""
    try:
        yield
    except OSError as error:
        raise TableTroubleError(
            f"rows cannot be sorted on the local disk, in {tempfile.gettempdir()}: {error}; make room there, let"
            " TMPDIR name another folder, or set a smaller iceberg.maintenance.group-bytes"
        ) from error


def _joined(parts: Sequence[Keyed]) -> Keyed:
    if len(parts) == 1:
        return parts[0]
    return pa.concat_batches([keys for keys, _ in parts]), pa.concat_batches([rows for _, rows in parts])


def _size(part: Keyed) -> int:
    return sum(batch.nbytes for batch in part)
