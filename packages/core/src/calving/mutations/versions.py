"""Chains the versions of rows: what the changes of a commit leave of the versions of each key (rule M16). All times are
numbers, whose order is that of the changes.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple, TypeVar

_T = TypeVar("_T")
EVER = -1
"""The begin of a version that is older than all changes."""


@dataclass(slots=True)
class Version:
    """A version of a row: from ``begin`` on until before ``end``; None: nothing has ended it. ``place``: of its row."""

    place: int
    begin: int
    end: int | None


class KeyVersion(NamedTuple):
    """The version of a row, its key, and the step of the commit that adds it; -1: the table has it."""

    key: int
    step: int
    begin: int
    end: int | None


class VersionChange(NamedTuple):
    """A change of a key by a step of the commit. Those that do not delete add a version, too."""

    key: int
    step: int
    at: int
    deletes: bool


class Revised(NamedTuple):
    """What becomes of the version at a place; None: it is gone."""

    place: int
    version: Version | None


def revised(versions: Sequence[KeyVersion], changes: Iterable[VersionChange], *, is_ordered: bool) -> Iterator[Revised]:
    """The versions that change, by their places among ``versions``. ``changes``: in the order of each step.

    ``is_ordered``: whether a change may come later than changes that count after it. Otherwise changes follow each
    other, and none counts before those that came before it.
    """
    rows = _by_key_and_step((each.key, each.step, place) for place, each in enumerate(versions))
    told = _by_key_and_step((each.key, each.step, each) for each in changes)
    for key, steps in rows.items():
        of_steps = {
            step: [Version(place, versions[place].begin, versions[place].end) for place in places]
            for step, places in steps.items()
        }
        left = {version.place: version for version in _left(of_steps, told.get(key, {}), is_ordered=is_ordered)}
        for place in sorted(chain.from_iterable(steps.values())):
            now, before = left.get(place), versions[place]
            if now is None or (now.begin, now.end) != (before.begin, before.end):
                yield Revised(place, now)


def _left(
    versions: Mapping[int, Sequence[Version]], changes: Mapping[int, Sequence[VersionChange]], *, is_ordered: bool
) -> list[Version]:
    """The versions of one key that all steps leave. ``versions`` and ``changes``: by step."""
    held: list[Version] = []
    for step in sorted({*versions, *changes}):
        new, of_step = sorted(versions.get(step, ()), key=_begin), changes.get(step, ())
        if step < 0:
            held = new
        elif is_ordered:
            _insert(held, new, [change.at for change in of_step if change.deletes])
        else:
            _follow(held, new, [change.at for change in of_step])
    return held


def _insert(held: list[Version], new: Sequence[Version], deletes: Sequence[int]) -> None:
    """Let each change end the version that contains it, in the order of their times."""
    changes: list[tuple[int, Version | None]] = [*((each.begin, each) for each in new), *((at, None) for at in deletes)]
    for at, version in sorted(changes, key=lambda change: change[0]):
        place = bisect_right(held, at, key=_begin)
        end = held[place].begin if place < len(held) else None
        before = held[place - 1] if place else None
        if before is not None and (before.end is None or before.end > at):
            end, before.end = before.end, at
            if before.begin == at:
                place -= 1
                del held[place]
        if version is not None:
            version.end = end
            held.insert(place, version)


def _follow(held: list[Version], new: Sequence[Version], changes: Sequence[int]) -> None:
    """Let the first change end the current version, and the new versions come behind it. No time is earlier than one
    before it.
    """
    last = max((each.begin if each.end is None else each.end for each in held), default=EVER)
    current = [each for each in held if each.end is None]
    if current and changes:
        last = max(last, changes[0])
        for each in current:
            each.end = last
    for each in new:
        each.begin = max(each.begin, last)
        each.end = None if each.end is None else max(each.end, last)
    held += new


def _begin(version: Version) -> int:
    return version.begin


def _by_key_and_step(found: Iterable[tuple[int, int, _T]]) -> dict[int, dict[int, list[_T]]]:
    grouped: dict[int, dict[int, list[_T]]] = defaultdict(lambda: defaultdict(list))
    for key, step, each in found:
        grouped[key][step].append(each)
    return grouped
