"""The files below a location, one after the other: pyiceberg's file systems cannot list them.

A disk is listed folder by folder. An object store is asked for two levels of folders, and for each of the folders at
the second level with all that is below it: the folders of Iceberg's object-storage layout are as many as its files.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlparse

import pyarrow.fs as fs
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import PyArrowFileIO

from calving.errors import TableTroubleError
from calving.maintenance.orphans import StoredFile

_STORES = {"s3", "gcs", "abfs"}
"""pyarrow's file systems without real folders."""
_LEVELS = 2
_TIMES = ("mtime", "last_modified", "LastModified", "updated")
"""The names that fsspec's file systems give to the time of the last change."""


def stored_files(io: FileIO, folder: str) -> Iterator[StoredFile]:
    """The files below a location; none if it does not exist. Links are not followed.

    :raises TableTroubleError: files of this kind of storage cannot be listed.
    :raises Exception: whatever the storage raises.
    """
    root = folder.rstrip("/")
    for path, size, modified_ms in _listed(io, root):
        yield StoredFile(f"{root}/{path}", size, modified_ms)


def modified_ms(io: FileIO, path: str) -> int | None:
    """When a file was changed, by the storage's clock; None if the storage does not tell."""
    if isinstance(io, PyArrowFileIO):
        system, place = _arrow(io, path)
        return _milliseconds(system.get_file_info(place).mtime)
    return _time_of(_fsspec(io, path).info(path))


def _listed(io: FileIO, root: str) -> Iterator[tuple[str, int, int | None]]:
    if not isinstance(io, PyArrowFileIO):
        yield from _of_fsspec(_fsspec(io, root), root)
        return
    system, place = _arrow(io, root)
    place = place.rstrip("/")
    if isinstance(system, fs.LocalFileSystem):
        yield from _of_disk(place, len(place) + 1)
        return
    for info in _of_arrow(system, place, 0 if system.type_name in _STORES else None):
        yield info.path[len(place) + 1 :], info.size, _milliseconds(info.mtime)


def _arrow(io: PyArrowFileIO, location: str) -> tuple[fs.FileSystem, str]:
    scheme, authority, path = io.parse_location(location, io.properties)
    return io.fs_by_scheme(scheme, authority), path


def _of_disk(folder: str, start: int) -> Iterator[tuple[str, int, int | None]]:
    waiting = [folder]
    while waiting:
        try:
            entries = os.scandir(waiting.pop())
        except FileNotFoundError:
            continue
        with entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
                elif entry.is_file(follow_symlinks=False):
                    try:
                        stat = entry.stat(follow_symlinks=False)
                    except FileNotFoundError:
                        continue
                    yield entry.path[start:], stat.st_size, stat.st_mtime_ns // 1_000_000


def _of_arrow(system: fs.FileSystem, folder: str, level: int | None) -> Iterator[fs.FileInfo]:
    """``level``: how many levels of an object store have been listed; None for a file system with real folders."""
    is_last = level is not None and level >= _LEVELS
    for info in system.get_file_info(fs.FileSelector(folder, allow_not_found=True, recursive=is_last)):
        if info.type is fs.FileType.File:
            yield info
        elif info.type is fs.FileType.Directory and not is_last:
            yield from _of_arrow(system, info.path, None if level is None else level + 1)


def _milliseconds(moment: datetime | None) -> int | None:
    return None if moment is None else int(moment.timestamp() * 1000)


def _fsspec(io: FileIO, location: str) -> Any:
    system_of = getattr(io, "_get_fs_from_uri", None)  # fsspec need not be installed
    if system_of is None:
        raise TableTroubleError(f"the files of its storage cannot be listed with {type(io).__name__}")
    return system_of(urlparse(location), location)


def _of_fsspec(system: Any, root: str) -> Iterator[tuple[str, int, int | None]]:
    place = system._strip_protocol(root).rstrip("/")
    for folder, _, files in system.walk(place, detail=True, on_error="raise") if system.exists(place) else ():
        for name, about in files.items():
            yield f"{folder}/{name}"[len(place) + 1 :], int(about["size"] or 0), _time_of(about)


def _time_of(about: Mapping[str, Any]) -> int | None:
    moment = next((about[name] for name in _TIMES if about.get(name)), None)
    if isinstance(moment, str):
        moment = datetime.fromisoformat(moment)
    if isinstance(moment, datetime):
        return _milliseconds(moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC))
    return None if moment is None else int(moment * 1000)
