"""A process in which DuckDB reads records. What a record does to it ends at the process: a function that takes too long
or overflows the stack makes its own record bad.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO, Any

import duckdb
import pyarrow as pa

from calving.errors import UnexpectedError, first_line
from calving.host import memory_limit, python_environment, resident_bytes
from calving.model.record_path import Limits
from calving.transforms.query_errors import CUT, QueryEndedError

_SERVE = "from calving.transforms.query_process import serve; serve()"
_START_SECONDS = 60.0
"""The time that a busy machine may need to start the process."""
_CLOCK_SECONDS = 60.0
_CLOCK_FACTOR = 10
"""By the clock, a query may take so many times its processor time, and these seconds: the machine may be busy."""
_CRASHES = (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL)
_HEAD = struct.Struct(">QQ")
"""The lengths of the two parts of a message: JSON, and a table as an IPC stream of Arrow."""


class QueryProcess:
    """One query at a time. After a ``QueryEndedError`` the next query starts a new process."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._process: subprocess.Popen[bytes] | None = None

    def run(self, table: pa.Table, query: str) -> tuple[pa.Table, set[int]]:
        """The rows, and the places of the columns that are JSON.

        :raises QueryEndedError: as the class says. :raises duckdb.Error: DuckDB refuses a row.
        :raises UnexpectedError: the process does not start or answer, or has ended, and nothing tells whether a row is
            the cause. :raises pa.ArrowException: the table cannot be sent.
        """
        size = size_of(table)
        process = self._process or self._started()
        self._process = None  # until it has answered
        seconds = clock_seconds(self._limits.sql_ms)
        with _watched(process, seconds):
            try:
                send(_pipe(process.stdin), {"query": query}, table, size)
                report, rows = receive(_pipe(process.stdout))
            except (EOFError, BrokenPipeError):
                raise self._ended(process.wait(), seconds) from None
        if report["last"] or report.get("error") == "fatal":
            _kill(process)
        else:
            self._process = process
        if "error" in report:
            raise self._failed(report["error"], report["text"])
        if rows is None:
            raise TypeError("an answer without rows")
        return rows, set(report["json"])

    def close(self) -> None:
        if self._process is not None:
            _kill(self._process)
            self._process = None

    def _started(self) -> subprocess.Popen[bytes]:
        try:
            process = subprocess.Popen(
                [sys.executable, "-P", "-c", _SERVE],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=python_environment(),
            )
        except OSError as error:  # this machine has no room for it
            raise UnexpectedError(f"transform Sql: the process of DuckDB does not start: {error}") from error
        try:
            with _watched(process, _START_SECONDS):
                send(_pipe(process.stdin), {"sql_ms": self._limits.sql_ms, "sql_bytes": self._limits.sql_bytes})
                receive(_pipe(process.stdout))
        except (EOFError, BrokenPipeError):
            code = process.wait()
            does = f"the process of DuckDB does not start: it has ended with code {code}"
            raise UnexpectedError(f"transform Sql: {does}") from None
        return process

    def _ended(self, code: int, seconds: float) -> Exception:
        if code == -signal.SIGPROF:
            return QueryEndedError(f"the query takes more than iceberg.limits.sql-ms = {self._limits.sql_ms}")
        if -code in _CRASHES:
            return QueryEndedError(f"the query has ended DuckDB's process ({signal.Signals(-code).name})")
        if code == -signal.SIGKILL:
            how = f"been killed: it has not answered for {seconds:g} s, or this machine has no memory left"
            return UnexpectedError(f"transform Sql: the process of DuckDB has {how}")
        return UnexpectedError(f"transform Sql: the process of DuckDB has ended with code {code}")

    def _failed(self, kind: str, text: str) -> Exception:
        import duckdb

        if kind == "memory":
            most = f"iceberg.limits.sql-bytes = {self._limits.sql_bytes}"
            return QueryEndedError(f"the query takes more memory than {most} allows: {text}")
        if kind == "fatal":
            return QueryEndedError(f"the query has ended DuckDB: {text}")
        known = getattr(duckdb, kind, ValueError)
        return known(text) if issubclass(known, Exception) else ValueError(text)


def clock_seconds(sql_ms: int) -> float:
    """How long a query may take by the clock."""
    return sql_ms / 1_000 * _CLOCK_FACTOR + _CLOCK_SECONDS


@contextmanager
def _watched(process: subprocess.Popen[bytes], seconds: float) -> Iterator[None]:
    """Kill the process if this takes longer, or fails."""
    timer = threading.Timer(seconds, process.kill)
    timer.daemon = True
    timer.start()
    try:
        yield
    except BaseException:
        _kill(process)
        raise
    finally:
        timer.cancel()
        timer.join()  # a late kill would hit the next query


def _kill(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    if pipe is None:
        raise TypeError("the process has no pipes")
    return pipe


def size_of(table: pa.Table) -> int:
    """How many bytes ``send`` writes for the table. :raises pa.ArrowException: it cannot be sent."""
    sink = pa.MockOutputStream()  # type: ignore[attr-defined]
    _write(sink, table)
    return int(sink.size())


def send(pipe: IO[bytes], message: dict[str, Any], table: pa.Table | None = None, size: int = 0) -> None:
    """``size``: what ``size_of`` says of the table, which is not copied. :raises BrokenPipeError: nobody reads."""
    head = json.dumps(message).encode()
    pipe.write(_HEAD.pack(len(head), size) + head)
    if table is not None:
        _write(pa.PythonFile(pipe, mode="w"), table)  # type: ignore[attr-defined]
    pipe.flush()


def _write(sink: pa.NativeFile, table: pa.Table) -> None:
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)


def receive(pipe: IO[bytes]) -> tuple[dict[str, Any], pa.Table | None]:
    """:raises EOFError: the other side has ended."""
    head, body = _HEAD.unpack(_exactly(pipe, _HEAD.size))
    message = json.loads(_exactly(pipe, head))
    if not body:
        return message, None
    with pa.ipc.open_stream(pa.py_buffer(_exactly(pipe, body))) as stream:
        return message, stream.read_all()


def _exactly(pipe: IO[bytes], size: int) -> bytes:
    data = pipe.read(size)
    if len(data) < size:
        raise EOFError
    return data


_idle: dict[tuple[int, int, int], list[QueryProcess]] = {}
"""Processes that wait for a query, by the process that started them, and by their limits."""
_lock = threading.Lock()


@contextmanager
def lent(limits: Limits) -> Iterator[QueryProcess]:
    """A process for one query. Tasks that follow each other in this process share it."""
    key = os.getpid(), limits.sql_ms, limits.sql_bytes
    with _lock:
        waiting = _idle.setdefault(key, [])
        process = waiting.pop() if waiting else QueryProcess(limits)
    try:
        yield process
    finally:
        with _lock:
            waiting.append(process)


@atexit.register
def _close() -> None:
    for (pid, *_), processes in _idle.items():
        for process in processes if pid == os.getpid() else ():
            with suppress(OSError):
                process.close()


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
            return {"error": type(error).__name__, "text": str(error) or CUT}, None, 0
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
