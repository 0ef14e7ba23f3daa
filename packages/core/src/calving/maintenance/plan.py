"""Decides which data files of a table are rewritten together, and why."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from calving.model.text import bytes_text, counted

_SMALL, _MEDIUM = 1 / 8, 3 / 4
"""A file with fewer bytes than the first share of the target size is small; another one with fewer bytes than the
second share is medium.
"""
_LATER_MS, _SMALL_LATER = 3_600_000, 2
"""So many small files of this age are enough."""
_LANDED_MS = 60_000
"""A file of this age that has landed outside of the partitions is due."""
_MOST_ROWS = 50_000_000
"""The most rows of a group of several files. The number of each is kept on the storage until the commit."""

PartitionKey = tuple[int, tuple[Any, ...]]
"""A spec, and the values of a partition."""


@dataclass(frozen=True, slots=True)
class Triggers:
    """When the files of a partition are rewritten. ``iceberg.maintenance.*`` sets it; the target is the table's.
    ``landed_files``: how many files without a partition, in a table with partitions; None: their number does not count.
    """

    small_files: int = 12
    medium_files: int = 5
    deleted_share: float = 0.3
    landed_files: int | None = None
    group_bytes: int = 2 * 1024**3
    target_bytes: int = 512 * 1024**2


@dataclass(frozen=True, slots=True)
class FileState:
    """A live data file. ``deleted``: how many of its rows delete files of its own delete. ``added_ms``: when it was
    added; None if nobody knows, because it was long ago. ``waits``: whether equality deletes apply to it.
    ``has_landed``: whether it has no partition, in a table with partitions.
    """

    path: str
    partition: PartitionKey
    size: int
    records: int
    deleted: int
    sequence: int
    added_ms: int | None
    waits: bool = False
    has_landed: bool = False


@dataclass(frozen=True, slots=True)
class FileGroup:
    """Files of one partition that are rewritten together, in this order, and why."""

    partition: PartitionKey
    files: tuple[FileState, ...]
    reason: str

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)


@dataclass(frozen=True, slots=True)
class Plan:
    """The groups to rewrite. ``waiting``: how many files are left alone because equality deletes apply to them."""

    groups: tuple[FileGroup, ...]
    waiting: int


def plan(files: Iterable[FileState], triggers: Triggers, now_ms: int) -> Plan:
    """The groups of files that are due, the partition with most files first."""
    partitions: dict[PartitionKey, list[FileState]] = {}
    waiting = 0
    for file in files:
        waiting += file.waits
        if not file.waits and _may_be_due(file, triggers):
            partitions.setdefault(file.partition, []).append(file)
    groups = [group for key, members in partitions.items() for group in _groups(key, members, triggers, now_ms)]
    return Plan(tuple(sorted(groups, key=lambda group: -len(group.files))), waiting)


def _may_be_due(file: FileState, triggers: Triggers) -> bool:
    """Whether a file has to be remembered: a table may have millions that never are due."""
    is_landed = file.has_landed and triggers.landed_files is not None
    return is_landed or file.size < int(_MEDIUM * triggers.target_bytes) or _is_holey(file, triggers)


def _is_holey(file: FileState, triggers: Triggers) -> bool:
    return file.deleted > 0 and file.deleted >= triggers.deleted_share * file.records


def _groups(
    partition: PartitionKey, files: Sequence[FileState], triggers: Triggers, now_ms: int
) -> Iterator[FileGroup]:
    undersized, why = _undersized(files, triggers, now_ms)
    holey = [file for file in files if _is_holey(file, triggers)]
    landed = _landed(files, triggers, now_ms)
    reasons = [why] if undersized and not landed else []
    if landed:
        reasons.append(f"{counted(len(landed), 'file')} without a partition")
    if holey:
        share = f"{triggers.deleted_share:.0%} or more of the rows deleted"
        reasons.append(f"{counted(len(holey), 'file')} with {share}")
    alone = {file.path for file in (*holey, *landed)}
    chosen = {file.path: file for file in (*undersized, *holey, *landed)}
    for members in _packed(chosen.values(), triggers.group_bytes):
        if len(members) > 1 or members[0].path in alone:
            yield FileGroup(partition, tuple(members), ", ".join(reasons))


def _undersized(files: Sequence[FileState], triggers: Triggers, now_ms: int) -> tuple[list[FileState], str]:
    """The files that are due because they are too small; and a text on them."""
    small_bytes, medium_bytes = (int(share * triggers.target_bytes) for share in (_SMALL, _MEDIUM))
    small = [file for file in files if file.size < small_bytes]
    medium = [file for file in files if small_bytes <= file.size < medium_bytes]
    if len(medium) >= triggers.medium_files:
        due, limit = [*small, *medium], medium_bytes
    elif len(small) >= triggers.small_files or sum(_is_old(file, now_ms) for file in small) >= _SMALL_LATER:
        due, limit = small, small_bytes
    else:
        return [], ""
    return due, f"{counted(len(due), 'file')} below {bytes_text(limit)}"


def _landed(files: Sequence[FileState], triggers: Triggers, now_ms: int) -> list[FileState]:
    """The files that are due because they wait for their partitions."""
    landed = [file for file in files if file.has_landed]
    enough = triggers.landed_files
    if enough is None or not (len(landed) >= enough or any(_is_old(file, now_ms, _LANDED_MS) for file in landed)):
        return []
    return landed


def _is_old(file: FileState, now_ms: int, age_ms: int = _LATER_MS) -> bool:
    return file.added_ms is None or now_ms - file.added_ms >= age_ms


def _packed(files: Iterable[FileState], most_bytes: int) -> Iterator[list[FileState]]:
    """The files in the order in which their rows came, in groups within the bounds. A larger file is alone."""
    group: list[FileState] = []
    size = rows = 0
    for file in sorted(files, key=lambda each: (each.sequence, each.path)):
        if group and (size + file.size > most_bytes or rows + file.records > _MOST_ROWS):
            yield group
            group, size, rows = [], 0, 0
        group.append(file)
        size += file.size
        rows += file.records
    if group:
        yield group
