"""A process in which DuckDB reads records. What a record does to it ends at the process: a function that takes too long
or overflows the stack makes its own record bad.
"""

from __future__ import annotations

import atexit
import json
import os
import selectors
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO, Any

import pyarrow as pa

from calving.errors import UnavailableError, UnexpectedError
from calving.host import python_environment
from calving.model.record_path import Limits

_SERVE = "from calving.transforms.query_server import serve; serve()"
_GRACE_SECONDS = 1.0
"""How much longer than a query's time the process may take. DuckDB ends most queries itself."""
_START_SECONDS = 60.0
"""The time that a busy machine may need to start the process."""
_CRASHES = (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL)
_HEAD = struct.Struct(">QQ")
"""The lengths of the two parts of a message: JSON, and a table as an IPC stream of Arrow."""


CUT = "DuckDB's error is cut within a character"
"""In the place of an error that Python cannot read."""


class QueryEndedError(Exception):
    """The query took more than a limit, or it has ended its process: some of its rows are bad."""


class QueryProcess:
    """One query at a time. After a ``QueryEndedError`` the next query starts a new process."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._process: subprocess.Popen[bytes] | None = None

    def run(self, table: pa.Table, query: str) -> tuple[pa.Table, set[int]]:
        """The rows, and the places of the columns that are JSON.

        :raises QueryEndedError: as the class says. :raises duckdb.Error: DuckDB refuses a row.
        :raises UnavailableError: the process does not start: no row is the cause. :raises UnexpectedError: it has
            ended, and nothing tells who is the cause.
        """
        process = self._process or self._started()
        self._process = None  # until it has answered
        limit = self._limits.sql_ms / 1_000
        try:
            send(_pipe(process.stdin), {"query": query}, table)
            report, rows = self._answer(process, time.monotonic() + limit + _GRACE_SECONDS)
        except TimeoutError:
            _end(process)
            raise QueryEndedError(_too_long(self._limits)) from None
        except (EOFError, BrokenPipeError):
            raise self._ended(process) from None
        if report.get("error") == "fatal":
            _end(process)
            raise QueryEndedError(f"the query has ended DuckDB: {report['text']}")
        self._process = process
        if "error" in report:
            raise self._failed(report["error"], report["text"])
        if rows is None:
            raise TypeError("an answer without rows")
        return rows, set(report["json"])

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
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
            raise UnavailableError(f"transform Sql: the process of DuckDB does not start: {error}") from error
        try:
            limits = {"sql_ms": self._limits.sql_ms, "sql_bytes": self._limits.sql_bytes}
            send(_pipe(process.stdin), limits, None)
            self._answer(process, time.monotonic() + _START_SECONDS)
        except TimeoutError:
            _end(process)
            raise UnavailableError("transform Sql: the process of DuckDB does not start") from None
        except (EOFError, BrokenPipeError):
            raise UnexpectedError(
                f"transform Sql: the process of DuckDB does not start: it has ended with code {process.wait()}"
            ) from None
        return process

    def _answer(self, process: subprocess.Popen[bytes], deadline: float) -> tuple[dict[str, Any], pa.Table | None]:
        pipe = _pipe(process.stdout)
        with selectors.DefaultSelector() as ready:
            ready.register(pipe, selectors.EVENT_READ)
            if not ready.select(max(deadline - time.monotonic(), 0)):
                raise TimeoutError
        return receive(pipe)

    def _ended(self, process: subprocess.Popen[bytes]) -> Exception:
        code = process.wait()
        if -code in _CRASHES:
            return QueryEndedError(f"the query has ended DuckDB's process ({signal.Signals(-code).name})")
        return UnexpectedError(f"transform Sql: the process of DuckDB has ended with code {code}")

    def _failed(self, kind: str, text: str) -> Exception:
        import duckdb

        if kind == "time":
            return QueryEndedError(_too_long(self._limits))
        if kind == "memory":
            most = f"iceberg.limits.sql-bytes = {self._limits.sql_bytes}"
            return QueryEndedError(f"the query takes more memory than {most} allows: {text}")
        known = getattr(duckdb, kind, ValueError)
        return known(text) if issubclass(known, Exception) else ValueError(text)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


def _too_long(limits: Limits) -> str:
    return f"the query takes more than iceberg.limits.sql-ms = {limits.sql_ms}"


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    if pipe is None:
        raise TypeError("the process has no pipes")
    return pipe


def send(pipe: IO[bytes], message: dict[str, Any], table: pa.Table | None) -> None:
    """:raises BrokenPipeError: nobody reads."""
    head, body = json.dumps(message).encode(), b""
    if table is not None:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as stream:
            stream.write_table(table)
        body = sink.getvalue().to_pybytes()
    for part in (_HEAD.pack(len(head), len(body)), head, body):
        pipe.write(part)
    pipe.flush()


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
