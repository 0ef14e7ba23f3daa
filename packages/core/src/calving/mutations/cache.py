"""Key columns of data files, cached on local disk. Data files never change, so each is read from the table's storage
once.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import threading
import weakref
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa

from calving.mutations.columns import Column

_PREFIX = "calving-keys"
Batches = Iterator[pa.RecordBatch]


class KeyCache:
    """The key cache of one process, deleted when the process ends. The columns that were used longest ago are evicted
    first.
    """

    def __init__(self, max_bytes: int, above: Path | None = None) -> None:
        """``above``: the folder in which the cache is made; by default the folder for temporary files."""
        folder = above or Path(tempfile.gettempdir())
        _sweep(folder)
        self._folder = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}-{os.getuid()}-{os.getpid()}-", dir=folder))
        self._max_bytes = max_bytes
        weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        self._sizes: OrderedDict[str, tuple[int, str]] = OrderedDict()
        self._lock = threading.Lock()
        self.bytes = 0

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
            return _mapped(self._folder / name)
        except (OSError, pa.ArrowInvalid):  # temporary files may be deleted from outside
            self.drop(path, columns)
            return None

    def drop(self, path: str, columns: Sequence[Column]) -> None:
        """Remove the columns of a data file from the cache."""
        name = _name(path, columns)
        with self._lock:
            self.bytes -= self._sizes.pop(name, (0, ""))[0]
            (self._folder / name).unlink(missing_ok=True)  # readers that have it open are not affected

    def holds(self, path: str, columns: Sequence[Column]) -> bool:
        """Whether the columns of a data file are in the cache."""
        return _name(path, columns) in self._sizes

    def has_room_for(self, paths: Iterable[str], columns: Sequence[Column]) -> bool:
        """Whether the sorted keys of all these files, with the number of each row, fit without evicting anything."""
        sizes = [self._sizes.get(_name(path, columns), (None, ""))[0] for path in paths]
        return None not in sizes and self.bytes + 3 * sum(filter(None, sizes)) <= self._max_bytes

    def by_owner(self) -> dict[str, int]:
        """Bytes by table."""
        with self._lock:
            held = list(self._sizes.values())
        found: Counter[str] = Counter()
        for size, owner in held:
            found[owner] += size
        return dict(found)

    def _kept(self, name: str, found: Batches, owner: str) -> Batches:
        """Yield the batches, and cache them once all have been read."""
        part = self._folder / f"{name}.{threading.get_ident()}"
        writer = None
        try:
            for batch in found:
                writer = writer or pa.ipc.new_stream(part, batch.schema)
                writer.write_batch(batch)
                yield batch
            if writer is not None:
                writer.close()
                self._hold(name, part, owner)
        finally:
            if writer is not None:
                writer.close()
            part.unlink(missing_ok=True)

    def _hold(self, name: str, part: Path, owner: str) -> None:
        size = part.stat().st_size
        if size > self._max_bytes:
            return
        part.rename(self._folder / name)
        with self._lock:
            self.bytes += size - self._sizes.pop(name, (0, ""))[0]
            self._sizes[name] = size, owner
            while self.bytes > self._max_bytes:
                oldest, (freed, _) = self._sizes.popitem(last=False)
                self.bytes -= freed
                (self._folder / oldest).unlink(missing_ok=True)  # readers that have it open are not affected


def _name(path: str, columns: Sequence[Column]) -> str:
    told = repr((path, [(column.field_id, str(column.kind)) for column in columns]))
    return hashlib.sha256(told.encode()).hexdigest()


def _mapped(path: Path) -> Sequence[pa.RecordBatch]:
    """The batches of a file, mapped into memory: the pages belong to the system's page cache, not to this process."""
    # A file with a footer would be opened by Arrow's threads, which takes five times as long.
    with pa.ipc.open_stream(pa.memory_map(str(path))) as reader:
        return list(reader)


def _sweep(folder: Path) -> None:
    """Delete the folders of processes that have ended."""
    for left in folder.glob(f"{_PREFIX}-{os.getuid()}-*"):
        pid = left.name.split("-")[3]
        if pid.isdigit() and not Path(f"/proc/{pid}").exists() and Path("/proc/self").exists():
            shutil.rmtree(left, ignore_errors=True)
