"""The other side of ``query_process``: DuckDB in memory, without files and network, and with limits."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO, Any

import duckdb
import pyarrow as pa

from calving.errors import first_line
from calving.host import memory_limit, resident_bytes
from calving.transforms.query_process import CUT, clock_seconds, receive, send, size_of

_BATCHES = 64
"""More than Arrow has threads for a scan."""
INVALIDATING = (duckdb.InternalException, duckdb.FatalException)
"""After these errors, a database refuses all queries."""
_KEPT_BYTES = 128 * 2**20
"""A process that keeps more memory than this after a query, and than half of its limit, is replaced. DuckDB gives none
back.
"""
_LATE_SECONDS = 5.0
"""If a query still runs so long after its time by the clock, its process ends itself: nobody may be there to end it."""


def serve() -> None:
    """Answer queries from the standard input until it ends."""
    # The process that asks ends its batch after such a signal. This one ends with it.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    for number in (signal.SIGPROF, signal.SIGALRM):
        signal.signal(number, signal.SIG_DFL)  # they end a query that takes too long
    asked, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever DuckDB prints, it is no answer
    try:
        limits, _ = receive(asked)
        server = _Server(**limits)
        send(answers, {})
        while True:
            _serve_one(server, asked, answers)
    except (EOFError, BrokenPipeError):
        os._exit(0)  # no finalizer of DuckDB may wait


def _serve_one(server: _Server, asked: IO[bytes], answers: IO[bytes]) -> None:
    message, table = receive(asked)
    if table is None:
        raise TypeError("a query without records")
    report, rows, size = server.answer(table, message["query"])
    report["last"] = server.is_full(table.nbytes + size)
    del table  # an answer may wait for its reader
    send(answers, report, rows, size)


class _Server:
    def __init__(self, sql_ms: int, sql_bytes: int) -> None:
        self._seconds, self._bytes = sql_ms / 1_000, sql_bytes
        self._late = clock_seconds(sql_ms) + _LATE_SECONDS
        self._connection: Any = duckdb.connect(":memory:", config={"threads": 1})
        for setting in (
            "TimeZone = 'UTC'",
            "temp_directory = ''",
            "enable_external_access = false",
            "enable_progress_bar = false",
            f"memory_limit = '{sql_bytes}B'",
            "lock_configuration = true",
        ):
            self._connection.execute(f"SET {setting}")
        # Arrow starts its threads with the first scan. Under the limit of memory, a thread may not start, and the scan
        # would wait for it for ever.
        self._connection.register("records", pa.table({"a": pa.chunked_array([[0]] * _BATCHES)}))
        self._connection.execute("SELECT * FROM records").fetchall()
        self._connection.unregister("records")
        self._taken = resident_bytes()

    def is_full(self, used: int) -> bool:
        """Whether this process keeps too much memory. ``used``: what it still uses for a query."""
        resident = resident_bytes()
        if resident is None or self._taken is None:
            return False
        return resident - self._taken - used > max(self._bytes // 2, _KEPT_BYTES)

    def answer(self, table: pa.Table, query: str) -> tuple[dict[str, Any], pa.Table | None, int]:
        """A report, and unless it is of an error the rows and the bytes that they take in a message."""
        try:
            self._connection.register("records", table)
            # DuckDB's own limit does not count the memory that a function takes for a value before it is in a column,
            # nor the answer.
            with self._timed(), memory_limit(2 * self._bytes):
                done = self._connection.execute(query)
                places = [place for place, (_, kind, *_) in enumerate(done.description) if str(kind) == "JSON"]
                # DuckDB reserves memory for as many rows in each column.
                rows = done.to_arrow_table(batch_size=max(table.num_rows, 1))
                size = size_of(rows)
            if size > self._bytes:
                raise MemoryError(f"its rows take {size} bytes")
            return {"json": places}, rows, size
        except (MemoryError, duckdb.OutOfMemoryException) as error:
            return {"error": "memory", "text": first_line(error)}, None, 0
        except INVALIDATING as error:
            return {"error": "fatal", "text": first_line(error)}, None, 0
        except UnicodeDecodeError:  # DuckDB has cut the text of its error within a character
            return {"error": "Error", "text": CUT}, None, 0
        except Exception as error:  # DuckDB's, or Arrow's if it has no such type
            return {"error": type(error).__name__, "text": str(error)}, None, 0
        finally:
            with suppress(*INVALIDATING):
                self._connection.unregister("records")

    @contextmanager
    def _timed(self) -> Iterator[None]:
        """End this process if the query takes too long. Of the processor's time, which the system counts: neither a
        machine that stands still nor a busy one makes a query take longer.
        """
        signal.setitimer(signal.ITIMER_PROF, self._seconds)
        signal.setitimer(signal.ITIMER_REAL, self._late)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.setitimer(signal.ITIMER_REAL, 0)
