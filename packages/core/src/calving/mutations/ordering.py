"""With an order field: which rows of a key lose, where the greatest order value wins (M8)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from calving.mutations.candidates import Candidate
from calving.mutations.keys import Keys, Matches

Found = tuple[Candidate, Matches]
Place = tuple[str, int]
"""A data file, and the position of a row in it."""


@dataclass(frozen=True, slots=True)
class _Row:
    place: Place
    order: Any
    step: int | None
    """The one that brings it; None: the table has it."""


def losers(
    keys: Keys, changes: Sequence[Mapping[int, Any]], found: Sequence[Found], is_dead: Callable[[Place], bool]
) -> Iterator[Place]:
    """The rows that lose. ``changes``: for each step the order value of each key that it changes.

    ``found``: all rows that have one of the keys.
    """
    rows: defaultdict[int, list[_Row]] = defaultdict(list)
    contested = _contested(keys, found)
    for file, matches in found:
        if file.step is not None:  # else every key of a batch would be looked at one by one
            matches = _only(matches, contested)
        for at, key, order in zip(
            *(part.to_pylist() for part in (matches.rows, matches.keys, matches.orders)), strict=True
        ):
            if file.step is not None or not is_dead((file.path, at)):
                rows[key].append(_Row((file.path, at), order, file.step))
    for key, several in rows.items():
        yield from _of_key([change.get(key, _NONE) for change in changes], several)


_NONE = object()


def _of_key(changes: Sequence[Any], rows: Iterable[_Row]) -> Iterator[Place]:
    """A change that loses to a live row takes its own row along, and deletes nothing."""
    live = [row for row in rows if row.step is None]
    for step, order in enumerate(changes):
        own = [row for row in rows if row.step == step]
        if order is not _NONE:
            if any(_is_greater(row.order, order) for row in live):
                lost, own = own, []
            else:
                lost, live = live, []
            yield from (row.place for row in lost)
        live += own


def _is_greater(order: Any, than: Any) -> bool:
    """Nothing is less than any value."""
    return order is not None and (than is None or order > than)


def _contested(keys: Keys, found: Iterable[Found]) -> pa.Array:
    """Keys that a step changes when there are rows of it from before."""
    before = [
        each.keys if file.step is None else each.keys.filter(pc.greater(keys.last_steps.take(each.keys), file.step))
        for file, each in found
    ]
    return pa.chunked_array(before, pa.int32()).unique()


def _only(matches: Matches, keys: pa.Array) -> Matches:
    mask = pc.is_in(matches.keys, value_set=keys)
    return Matches(matches.rows.filter(mask), matches.keys.filter(mask), matches.orders.filter(mask))
