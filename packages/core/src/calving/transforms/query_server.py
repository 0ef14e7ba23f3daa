"""The other side of ``query_process``: DuckDB in memory, without files and network, and with limits."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import duckdb
import pyarrow as pa

from calving.errors import first_line
from calving.host import memory_limit
from calving.transforms.query_process import CUT, receive, send

_BATCHES = 64
"""More than Arrow has threads for a scan."""
INVALIDATING = (duckdb.InternalException, duckdb.FatalException)
"""After these errors, a database refuses all queries."""
_LATE_SECONDS = 5.0
"""If a query still runs so long after its time, its process ends itself: nobody may be there to end it."""


def serve() -> None:
    """Answer queries from the standard input until it ends."""
    # The process that asks ends its batch after such a signal. This one ends with it.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    asked, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever DuckDB prints, it is no answer
    try:
        limits, _ = receive(asked)
        server = _Server(**limits)
        send(answers, {}, None)
        while True:
            message, table = receive(asked)
            report, rows = server.answer(table, message["query"])
            send(answers, report, rows)
    except (EOFError, BrokenPipeError):
        os._exit(0)  # no finalizer of DuckDB may wait


class _Server:
    def __init__(self, sql_ms: int, sql_bytes: int) -> None:
        self._seconds, self._bytes = sql_ms / 1_000, sql_bytes
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

    def answer(self, table: pa.Table | None, query: str) -> tuple[dict[str, Any], pa.Table | None]:
        try:
            self._connection.register("records", table)
            # DuckDB's own limit does not count the memory that a function takes for a value before it is in a column.
            with self._timed(), memory_limit(2 * self._bytes):
                done = self._connection.execute(query)
                places = [place for place, (_, kind, *_) in enumerate(done.description) if str(kind) == "JSON"]
                return {"json": places}, done.to_arrow_table()
        except duckdb.InterruptException:
            return {"error": "time", "text": ""}, None
        except (MemoryError, duckdb.OutOfMemoryException) as error:
            return {"error": "memory", "text": first_line(error)}, None
        except INVALIDATING as error:
            return {"error": "fatal", "text": first_line(error)}, None
        except UnicodeDecodeError:  # DuckDB has cut the text of its error within a character
            return {"error": "Error", "text": CUT}, None
        except Exception as error:  # DuckDB's, or Arrow's if it has no such type
            return {"error": type(error).__name__, "text": str(error)}, None
        finally:
            with suppress(*INVALIDATING):
                self._connection.unregister("records")

    @contextmanager
    def _timed(self) -> Iterator[None]:
        """Interrupt what takes too long. DuckDB notices it between its steps, which take up to 2,048 rows."""
        timers = [
            threading.Timer(self._seconds, self._connection.interrupt),
            threading.Timer(self._seconds + _LATE_SECONDS, os._exit, [1]),
        ]
        for timer in timers:
            timer.daemon = True
            timer.start()
        try:
            yield
        finally:
            for timer in timers:
                timer.cancel()
                timer.join()  # a late interrupt would hit the next query
