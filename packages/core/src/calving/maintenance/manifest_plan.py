"""Decides which manifests of a table are merged (K18)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

LEAST_OF_DELETES = 20
"""So many small manifests of delete files are enough: readers read all of them for each data file."""
_SMALL = 3 / 4
"""A manifest with fewer bytes than this share of the target size is small."""
_MOST_FILES = 50_000
"""The most files of a group of several manifests: all of its entries are in memory at a time."""


@dataclass(frozen=True, slots=True)
class ManifestState:
    """A manifest with live files. ``content``: data or deletes. ``lower``: the least partition values of its files;
    None stands for an unknown or missing one. ``sequence``: its sequence number.
    """

    path: str
    content: str
    spec_id: int
    size: int
    files: int
    lower: tuple[Any, ...] = ()
    sequence: int = 0


@dataclass(frozen=True, slots=True)
class ManifestGroup:
    """Manifests of one spec that are merged. ``outputs``: about how many they become."""

    content: str
    spec_id: int
    manifests: tuple[ManifestState, ...]
    outputs: int

    @property
    def size(self) -> int:
        return sum(manifest.size for manifest in self.manifests)

    @property
    def files(self) -> int:
        return sum(manifest.files for manifest in self.manifests)


def manifest_groups(
    manifests: Iterable[ManifestState], least: int, target_bytes: int, least_of_deletes: int = LEAST_OF_DELETES
) -> tuple[ManifestGroup, ...]:
    """The groups to merge: none, unless there are ``least`` small manifests of data files, or ``least_of_deletes`` of
    delete files. Manifests of a group have neighbouring partitions. Merging leaves fewer small ones.
    """
    small: dict[str, list[ManifestState]] = {}
    for manifest in manifests:
        if manifest.size < _SMALL * target_bytes:
            small.setdefault(manifest.content, []).append(manifest)
    enough = {"data": least, "deletes": min(least, least_of_deletes)}
    return tuple(
        group
        for content, members in small.items()
        if len(members) >= enough[content]
        for spec_id in sorted({member.spec_id for member in members})
        for group in _groups([member for member in members if member.spec_id == spec_id], target_bytes)
    )


def partition_order(values: Sequence[Any]) -> tuple[tuple[bool, Any], ...]:
    """Orders partitions by their values; those without a value come first."""
    return tuple((value is not None, value) for value in values)


def _groups(manifests: Iterable[ManifestState], target_bytes: int) -> Iterator[ManifestGroup]:
    ordered = sorted(manifests, key=lambda each: (partition_order(each.lower), each.sequence, each.path))
    for members in _packed(ordered):
        outputs = -(-sum(member.size for member in members) // target_bytes)
        if outputs < len(members):
            yield ManifestGroup(members[0].content, members[0].spec_id, tuple(members), outputs)


def _packed(manifests: Iterable[ManifestState]) -> Iterator[list[ManifestState]]:
    group: list[ManifestState] = []
    files = 0
    for manifest in manifests:
        if group and files + manifest.files > _MOST_FILES:
            yield group
            group, files = [], 0
        group.append(manifest)
        files += manifest.files
    if group:
        yield group
