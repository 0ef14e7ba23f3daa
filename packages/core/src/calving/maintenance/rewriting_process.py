"""Rewrites files in a process of its own at low priority (K11), so that the process that asks goes on with its work.
It rewrites small groups of files itself: to start a process takes more CPU than that.

The request goes through the standard input, because it holds credentials, and the answer comes back through the
standard output. The process ends as soon as its input ends, and then deletes what it has written: with the process that
asked, or when that one gives up.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass

from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.io import load_file_io
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyroaring import BitMap64

from calving.errors import CalvingError, TableTroubleError
from calving.host import python_environment
from calving.iceberg.live_files import LiveData
from calving.iceberg.locations import carried
from calving.maintenance.outputs import OutputSpec
from calving.maintenance.rewrite import DeletedRows, RewrittenRows, rewrite
from calving.storage_errors import described

_SERVE = "from calving.maintenance.rewriting_process import serve; serve()"
_NICE = 10
_SMALL_BYTES = 8 * 2**20
_SMALL_CELLS = 2_000_000
"""A group with at most so many bytes and values is small: it takes at most 0.2 s of CPU, a process 1 s to start."""


@dataclass(frozen=True, slots=True)
class _Request:
    """What is to be rewritten. ``deleted``: the deleted rows of each file."""

    name: tuple[str, ...]
    metadata: TableMetadata
    location: str
    io: dict[str, str]
    inputs: tuple[LiveData, ...]
    deleted: dict[str, BitMap64]
    spec: OutputSpec

    def before(self, path: str) -> BitMap64:
        return self.deleted[path]

    def table(self) -> Table:
        io = load_file_io(self.io, self.metadata.location)
        return Table(self.name, self.metadata, self.location, io, NoopCatalog("none"))


class RewritingProcess:
    """Rewrites as ``rewrite`` does, one group after the other, each in a new process; small groups in this process.
    ``stop`` may come from another thread.
    """

    def __init__(self, small_bytes: int = _SMALL_BYTES) -> None:
        """``small_bytes``: of the largest group that is rewritten in this process."""
        self._small_bytes = small_bytes
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._is_stopped = False

    def __call__(
        self, table: Table, inputs: Collection[LiveData], deletions: DeletedRows, spec: OutputSpec, /
    ) -> RewrittenRows:
        """:raises TableTroubleError: whatever ``rewrite`` raises, by its text; or the process has ended.
        :raises Exception: whatever ``rewrite`` raises, of a small group.
        """
        if self._is_small(table, inputs):
            self._check_not_stopped()
            return rewrite(table, inputs, deletions, spec)
        request = _Request(
            name=tuple(table.name()),
            metadata=table.metadata,
            location=table.metadata_location,
            io=carried(table.io),
            inputs=tuple(inputs),
            deleted={data.candidate.path: deletions.before(data.candidate.path) for data in inputs},
            spec=spec,
        )
        process = self._started()
        try:
            return _answer(process, pickle.dumps(request))
        finally:
            with self._lock:
                self._process = None
            _end(process)

    def stop(self) -> None:
        """Give up what is being rewritten, and rewrite nothing more."""
        with self._lock:
            self._is_stopped = True
            if self._process is not None and self._process.stdin is not None:
                self._process.terminate()

    def _is_small(self, table: Table, inputs: Collection[LiveData]) -> bool:
        size = sum(data.candidate.size for data in inputs)
        cells = sum(data.candidate.records for data in inputs) * len(table.schema().field_ids)
        return size <= self._small_bytes and cells <= _SMALL_CELLS

    def _check_not_stopped(self) -> None:
        if self._is_stopped:
            raise TableTroubleError("nothing is rewritten any more, because this process ends its maintenance")

    def _started(self) -> subprocess.Popen[bytes]:
        with self._lock:
            self._check_not_stopped()
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", _SERVE],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=python_environment(),
            )
            return self._process


def _answer(process: subprocess.Popen[bytes], request: bytes) -> RewrittenRows:
    """:raises TableTroubleError: there is none."""
    asked, answers = process.stdin, process.stdout
    if asked is None or answers is None:
        raise TypeError("the process has no pipes")
    with suppress(BrokenPipeError):  # what it has said, or its exit code, tells why
        asked.write(len(request).to_bytes(8) + request)
        asked.flush()
    text = answers.read()
    if not text:
        raise TableTroubleError(f"the process that rewrites files has ended with code {process.wait()}")
    answer = pickle.loads(text)  # noqa: S301 - this process has started the one that wrote it
    if isinstance(answer, RewrittenRows):
        return answer
    raise TableTroubleError(str(answer))


def _end(process: subprocess.Popen[bytes]) -> None:
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with suppress(BrokenPipeError):
                pipe.close()
    process.wait()


def serve() -> None:
    """Answer one request."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal: the process that asked decides
    signal.signal(signal.SIGTERM, _leave)
    os.nice(_NICE)
    asked, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever a library prints, it is no answer
    request: _Request = pickle.loads(asked.read(int.from_bytes(asked.read(8))))  # noqa: S301 - from its own parent
    threading.Thread(target=end_with, args=(asked.fileno(),), daemon=True).start()
    try:
        answer: RewrittenRows | str = rewrite(request.table(), request.inputs, request, request.spec)
    except Exception as error:  # a storage may raise anything
        answer = str(error) if isinstance(error, CalvingError) else described(error)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the files are the other process's from now on
    with answers:
        answers.write(pickle.dumps(answer))
    os._exit(0)  # no finalizer of a library may wait


def _leave(number: int, frame: object) -> None:
    signal.signal(number, signal.SIG_IGN)  # what was written is deleted now
    raise SystemExit(128 + number)


def end_with(asked: int) -> None:
    """End this process as soon as this file, a pipe, has ended: nobody waits for an answer."""
    while os.read(asked, 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
