"""DuckDB in memory, for one task: without files and network, and with limits of memory and time."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from calving.errors import ConfigError, first_line
from calving.host import memory_limit
from calving.model.record_path import Limits

_BATCHES = 64
"""More than Arrow has threads for a scan."""


class Database:
    """Runs queries over a table called ``records``. ``error``: the class of DuckDB's errors."""

    def __init__(self) -> None:
        """:raises ConfigError: DuckDB is not installed."""
        try:
            import duckdb
        except ImportError as error:
            raise ConfigError('transform Sql: install "calving[sql]"') from error
        self.connection: Any = duckdb.connect(":memory:", config={"threads": 1})
        self.error: type[Exception] = duckdb.Error
        self._interrupted, self._full = duckdb.InterruptException, duckdb.OutOfMemoryException
        self._limits = Limits()
        for setting in ("TimeZone = 'UTC'", "temp_directory = ''", "enable_external_access = false"):
            self.connection.execute(f"SET {setting}")

    def limit(self, limits: Limits) -> None:
        """Set the limits of all queries from now on. Call it once: then the settings of DuckDB are locked."""
        self._limits = limits
        self.connection.execute(f"SET memory_limit = '{limits.sql_bytes}B'")
        self.connection.execute("SET lock_configuration = true")
        # Arrow starts its threads with the first scan. Under the limit of memory, a thread may not start, and the scan
        # would wait for it for ever.
        rows = pa.table({"a": pa.chunked_array([[0]] * _BATCHES)})
        self.connection.register("records", rows)
        self.connection.execute("SELECT * FROM records").fetchall()
        self.connection.unregister("records")

    def run(self, table: pa.Table, query: str) -> tuple[pa.Table, set[int]]:
        """The rows, and the places of the columns that are JSON. Arrow has them as text.

        :raises TimeoutError, MemoryError: a limit is exceeded.
        """
        self.connection.register("records", table)
        try:
            # DuckDB's own limit does not count the memory that a function takes for a value before it is in a column.
            with self._timed(), memory_limit(2 * self._limits.sql_bytes):
                done = self.connection.execute(query)
                places = {place for place, (_, kind, *_) in enumerate(done.description) if str(kind) == "JSON"}
                return done.to_arrow_table(), places
        except self._interrupted:
            raise TimeoutError(f"the query takes more than iceberg.limits.sql-ms = {self._limits.sql_ms}") from None
        except (MemoryError, self._full) as error:
            most = f"iceberg.limits.sql-bytes = {self._limits.sql_bytes}"
            raise MemoryError(f"the query takes more memory than {most} allows: {first_line(error)}") from None
        finally:
            self.connection.unregister("records")

    @contextmanager
    def _timed(self) -> Iterator[None]:
        """Interrupt what takes too long. DuckDB notices it between its steps, which take up to 2,048 rows."""
        timer = threading.Timer(self._limits.sql_ms / 1_000, self.connection.interrupt)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            timer.join()  # a late interrupt would hit the next query
