"""Key columns of data files, cached on local disk. Data files never change, so each is read from the table's storage
once. Nothing depends on the cache (L4): if the disk is full or the folder is gone, files are read again.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import shutil
import tempfile
import threading
import weakref
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pyarrow as pa

from calving.mutations.columns import Column

log = logging.getLogger(__name__)

_PREFIX = "calving-keys"
_SORTED_AT_ONCE = 1024**3
"""The most bytes of keys that are sorted together. Arrow's arrays of text hold 2 GiB."""
Batches = Iterator[pa.RecordBatch]


class KeyCache:
    """The key cache of one process, deleted when the process ends. The columns that were used longest ago are evicted
    first.
    """

    def __init__(self, max_bytes: int, above: Path | None = None) -> None:
        """``above``: the folder in which the cache is made; by default the folder for temporary files."""
        self._above = above or Path(tempfile.gettempdir())
        _sweep(self._above)
        self._folder = _Folder(Path(), None)
        self._max_bytes = max_bytes
        self._sizes: OrderedDict[str, tuple[int, str]] = OrderedDict()
        self._lock = threading.Lock()
        self._has_failed = False
        self.bytes = 0
        with self._tried():
            self._make_folder()

    def batches(
        self, path: str, columns: Sequence[Column], read: Callable[[], Batches], owner: str = ""
    ) -> tuple[Batches, bool]:
        """The columns of a data file of the table ``owner``, and whether they were in the cache. If not, ``read`` reads
        them.
        """
        held = self.get(path, columns)
        if held is not None:
            return iter(held), True
        return self._kept(_name(path, columns), read(), owner), False

    def get(self, path: str, columns: Sequence[Column]) -> Sequence[pa.RecordBatch] | None:
        """The columns of a data file; None if they are not in the cache."""
        name = _name(path, columns)
        with self._lock:
            if name not in self._sizes:
                return None
            self._sizes.move_to_end(name)
        try:
            return _mapped(self._folder.path / name)
        except (OSError, pa.ArrowInvalid):  # temporary files may be deleted from outside
            self.drop(path, columns)
            return None

    def drop(self, path: str, columns: Sequence[Column]) -> None:
        """Remove the columns of a data file from the cache."""
        name = _name(path, columns)
        with self._lock:
            self.bytes -= self._sizes.pop(name, (0, ""))[0]
            self._unlink(name)

    def holds(self, path: str, columns: Sequence[Column]) -> bool:
        """Whether the columns of a data file are in the cache."""
        return _name(path, columns) in self._sizes

    def has_room_for(self, paths: Iterable[str], columns: Sequence[Column]) -> bool:
        """Whether the keys of all these files can be sorted together, and the sorted keys, with the number of each row,
        fit without evicting anything.
        """
        sizes = [self._sizes.get(_name(path, columns), (None, ""))[0] for path in paths]
        size = sum(filter(None, sizes))
        return None not in sizes and size <= _SORTED_AT_ONCE and self.bytes + 3 * size <= self._max_bytes

    def by_owner(self) -> dict[str, int]:
        """Bytes by table."""
        with self._lock:
            held = list(self._sizes.values())
        sizes: Counter[str] = Counter()
        for size, owner in held:
            sizes[owner] += size
        return dict(sizes)

    def _kept(self, name: str, found: Batches, owner: str) -> Batches:
        """Yield the batches, and cache them once all have been read. They are yielded also if the disk fails."""
        part = _Part(f"{name}.{threading.get_ident()}")
        try:
            for batch in found:
                with self._tried():
                    part.add(batch, self._present_folder)
                yield batch
            with self._tried():
                if part.is_whole():
                    self._hold(name, part.path, owner)
        finally:
            part.remove()

    def _hold(self, name: str, part: Path, owner: str) -> None:
        size = part.stat().st_size
        if size > self._max_bytes:
            return
        part.rename(part.with_name(name))
        with self._lock:
            self.bytes += size - self._sizes.pop(name, (0, ""))[0]
            self._sizes[name] = size, owner
            while self.bytes > self._max_bytes:
                oldest, (freed, _) = self._sizes.popitem(last=False)
                self.bytes -= freed
                self._unlink(oldest)

    def _unlink(self, name: str) -> None:
        with suppress(OSError):
            (self._folder.path / name).unlink()  # readers that have it open are not affected

    def _present_folder(self) -> Path:
        """The cache's folder, made again if it is gone."""
        with self._lock:
            if not self._folder.is_present():
                self._make_folder()
            return self._folder.path

    def _make_folder(self) -> None:
        self._sizes.clear()
        self.bytes = 0
        self._folder.remove()
        self._folder = _Folder.made(self._above)
        weakref.finalize(self, self._folder.remove)

    @contextmanager
    def _tried(self) -> Iterator[None]:
        """Ignore errors of the disk, because the cache only saves time; log the first."""
        try:
            yield
        except OSError as error:
            if not self._has_failed:
                log.warning("files of the table are read again and again, because the key cache fails: %s", error)
            self._has_failed = True


class _Folder:
    """The folder of one cache. It is locked while its process lives."""

    def __init__(self, path: Path, lock: int | None) -> None:
        self.path, self._lock = path, lock

    @staticmethod
    def made(above: Path) -> _Folder:
        path = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}-{os.getuid()}-{os.getpid()}-", dir=above))
        lock = os.open(path, os.O_RDONLY)
        with suppress(OSError):  # some file systems have no locks; then nobody can get one, and the folder stays, too
            fcntl.flock(lock, fcntl.LOCK_EX)
        return _Folder(path, lock)

    def is_present(self) -> bool:
        return self._lock is not None and self.path.is_dir()

    def remove(self) -> None:
        if self._lock is not None:
            shutil.rmtree(self.path, ignore_errors=True)
            os.close(self._lock)
            self._lock = None


class _Part:
    """A file of the cache that is being written. After an error it takes no more batches."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._writer: pa.ipc.RecordBatchStreamWriter | None = None
        self._has_failed = False
        self.path = Path()

    def add(self, batch: pa.RecordBatch, folder: Callable[[], Path]) -> None:
        """:raises OSError: the disk fails."""
        if self._has_failed:
            return
        self._has_failed = True
        if self._writer is None:
            self.path = folder() / self._name
            self._writer = pa.ipc.new_stream(self.path, batch.schema)
        self._writer.write_batch(batch)
        self._has_failed = False

    def is_whole(self) -> bool:
        """Whether the file holds all batches, of which there is at least one.

        :raises OSError: the disk fails.
        """
        if self._writer is None or self._has_failed:
            return False
        self._close()
        return True

    def remove(self) -> None:
        """Delete the file, if it has not been renamed."""
        with suppress(OSError):
            self._close()
        if self.path.name:
            with suppress(OSError):
                self.path.unlink(missing_ok=True)

    def _close(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()


def _name(path: str, columns: Sequence[Column]) -> str:
    told = repr((path, [(column.field_id, str(column.kind), column.default) for column in columns]))
    return hashlib.sha256(told.encode()).hexdigest()


def _mapped(path: Path) -> Sequence[pa.RecordBatch]:
    """The batches of a file, mapped into memory: the pages belong to the system's page cache, not to this process."""
    # A file with a footer would be opened by Arrow's threads, which takes five times as long.
    with pa.ipc.open_stream(pa.memory_map(str(path))) as reader:
        return list(reader)


def _sweep(folder: Path) -> None:
    """Delete the folders of processes that have ended. Their ids tell nothing: other containers may share the folder,
    and have ids of their own.
    """
    for left in folder.glob(f"{_PREFIX}-{os.getuid()}-*"):
        with suppress(OSError):
            lock = os.open(left, os.O_RDONLY | os.O_DIRECTORY)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(left, ignore_errors=True)
            finally:
                os.close(lock)
