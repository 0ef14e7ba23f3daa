"""Lists of which a partial row has only the changed elements, one for each step that has one (rule M15)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, cast

import pyarrow as pa

from calving.records.arrays import children_of, items_of, lists, offsets_of, struct, take


class Cut(NamedTuple):
    """A step: the list loses its elements behind the first ones."""

    size: int


class Element(NamedTuple):
    """A step: the element of this number is the next one of the partial row. Elements before it that the list does not
    have are null. ``kept``: the text of what that element lacks, as of a partial row; None if it is whole.
    """

    number: int
    kept: str | None = None


Step = Cut | Element
Chain = Sequence[tuple[int, Sequence[Step] | None]]
"""Rows of one key, in their order: the number of each, and its steps. None: the row has the whole list."""
Join = Callable[[pa.StructArray, pa.Array, pa.Array], pa.StructArray]
"""Joins elements that are structs: the elements, the number of each result's ones, and what each element lacks. It
returns the results by number.
"""
_Piece = tuple[int, str | None]
"""The place of an element among all, and the text of what it lacks."""


def joined(column: pa.ListArray, chains: Sequence[Chain], join: Join) -> pa.ListArray:
    """The list of each chain. The first row of a chain has the whole list."""
    ends, items = offsets_of(column).to_pylist(), items_of(column)
    pieces, numbers, texts = list[int](), list[int](), list[str | None]()
    picks: list[int | None] = []
    sizes = [0]
    count = 0
    for chain in chains:
        for slot in _slots(chain, ends):
            if len(slot) == 1 and slot[0][1] is None:
                picks.append(slot[0][0])
                continue
            if not slot:
                picks.append(None)
                continue
            picks.append(len(items) + count)
            for place, kept in slot:
                pieces.append(place)
                numbers.append(count)
                texts.append(kept)
            count += 1
        sizes.append(len(picks))
    if count:
        parts = cast("pa.StructArray", take(items, pa.array(pieces, pa.int64())))
        made = join(parts, pa.array(numbers, pa.int64()), pa.array(texts, pa.string()))
        items = pa.concat_arrays([items, struct(children_of(made), parts.type, None, count)])
    return lists(
        pa.array(sizes, pa.int32()), take(items, pa.array(picks, pa.int64())), cast("pa.ListType", column.type), None
    )


def _slots(chain: Chain, ends: Sequence[int]) -> list[tuple[_Piece, ...]]:
    """The pieces that make up each element of a chain's list; none for a null."""
    slots: list[tuple[_Piece, ...]] = []
    for row, steps in chain:
        start = ends[row]
        if steps is None:
            slots = [((place, None),) for place in range(start, ends[row + 1])]
            continue
        for step in steps:
            if isinstance(step, Cut):
                del slots[step.size :]
                continue
            slots += [()] * (step.number + 1 - len(slots))
            piece = (start, step.kept)
            slots[step.number] = (piece,) if step.kept is None else (*slots[step.number], piece)
            start += 1
    return slots


def appended(column: pa.ListArray, chains: Sequence[Chain]) -> tuple[pa.ListArray, list[tuple[Step, ...]]]:
    """For each chain without a row that has the whole list: one list with the elements of all steps, and the steps."""
    ends, picks, sizes = offsets_of(column).to_pylist(), list[int](), [0]
    for chain in chains:
        for row, _ in chain:
            picks += range(ends[row], ends[row + 1])
        sizes.append(len(picks))
    items = take(items_of(column), pa.array(picks, pa.int64()))
    steps = [tuple(step for _, steps in chain for step in steps or ()) for chain in chains]
    return lists(pa.array(sizes, pa.int32()), items, cast("pa.ListType", column.type), None), steps
