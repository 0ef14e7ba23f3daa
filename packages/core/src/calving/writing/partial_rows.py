"""Partial rows: changes that lack columns, because their source has left out what did not change (rule M15). Each is
completed by the row before it; rows that follow each other are joined first.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import NamedTuple, cast

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
from pyiceberg.types import ListType, NestedField, StructType

from calving.records.arrays import children_of, struct, take
from calving.writing.kept_columns import ROOTLESS, Lacking, kept_ids, kept_steps, kept_text
from calving.writing.key_runs import KeyRuns
from calving.writing.partial_lists import Chain, Cut, Element, Join, Step, appended, joined


@dataclass(frozen=True, slots=True)
class Joined:
    """One row for each key, as its changes leave it. ``numbers``: of the keys. ``kept``: the columns that a row still
    lacks, maybe none; null if the changes of its key begin with a whole row. They have what the key's first change has
    there: null, or a default value. ``last``: the place of each key's last change.
    """

    rows: pa.RecordBatch
    numbers: pa.Array
    kept: pa.Array
    last: pa.Array


class _Column(NamedTuple):
    """A column of the schema, possibly within structs. ``around``: the ids of these structs."""

    field: NestedField
    path: tuple[int, ...]
    around: tuple[int, ...]


class PartialRows:
    """Joins the changes of each key, in the columns of a schema."""

    def __init__(self, schema: Schema) -> None:
        self._columns = {each.field.field_id: each for each in _columns(schema.fields, (), ())}
        self._inside = defaultdict[int, set[int]](set)
        for number, column in self._columns.items():
            for each in column.around:
                self._inside[each].add(number)

    def beside(self, text: str, known: Set[int]) -> str:
        """The text for a row whose file was written before columns were added to its table. The row also lacks each
        column that is not among ``known``, the field ids of the file. A struct or an element that lacks some of its
        fields also lacks those that are not among ``known``. Any other one is whole.
        """
        ids = {*kept_ids(text)}
        for number, column in self._columns.items():  # a struct comes before its fields
            struct_id = column.around[-1] if column.around else None
            lacks = struct_id is None or struct_id in ids or not ids.isdisjoint(self._inside[struct_id])
            if number not in known and lacks:
                ids.add(number)
        steps = {number: self._steps_beside(number, each, known) for number, each in kept_steps(text).items()}
        return kept_text(ids, steps, rootless=text.startswith(ROOTLESS))

    def _steps_beside(self, number: int, steps: Sequence[Step], known: Set[int]) -> Sequence[Step]:
        kind = self._columns[number].field.field_type if number in self._columns else None
        if not isinstance(kind, ListType) or not isinstance(kind.element_type, StructType):
            return steps
        inside = PartialRows(Schema(*kind.element_type.fields))
        return [
            step
            if isinstance(step, Cut) or step.kept is None
            else Element(step.number, inside.beside(step.kept, known))
            for step in steps
        ]

    def join(self, rows: pa.RecordBatch, every: KeyRuns, kept: pa.Array) -> Joined:
        """``rows`` in their order, whose first columns are those of the schema, and their keys. A whole row, and one
        without a row before it, replaces what was before it. The joined rows are in the order of their last changes.
        """
        lacking = Lacking.of(kept.take(every.order))
        root = every.last(lacking.are_rootless(otherwise=True))
        first = pc.coalesce(root, every.starts)
        by_place = pc.sort_indices(every.order.take(every.ends))
        runs, first, root = every.chosen(by_place), first.take(by_place), root.take(by_place)
        last, begins = runs.order.take(runs.ends), runs.order.take(first)
        keys = runs.numbers.take(first)
        lacks = [self._with_inner(kept_ids(text)) for text in lacking.texts]
        left = dict[int, pa.Array]()
        there = self._columns.keys()  # others are gone
        lacked = sorted(there & frozenset().union(*lacks), key=self._depth)
        made = _taken(rows, last, {path[0] for each in lacked if len(path := self._columns[each].path) == 1})
        for each in lacked:
            has = runs.last(lacking.is_so([each not in ids for ids in lacks], otherwise=True))
            source = pc.if_else(pc.greater_equal(has, first), has, None)
            if source.null_count:
                left[each] = self._left(each, source.is_null(), left)
            path = self._columns[each].path
            made = _with(made, path, _at(rows, path), pc.coalesce(runs.order.take(source), begins))
        steps = defaultdict[int, dict[int, Sequence[Step]]](dict)
        for each in sorted(there & frozenset().union(*map(kept_steps, lacking.texts))):
            chains = _chains(each, runs, dict(zip(keys.to_pylist(), first.to_pylist(), strict=True)), lacking, lacks)
            made = self._with_lists(made, self._columns[each], rows, keys, chains, steps)
        return Joined(made, keys, lacking.left(root, left, steps), last)

    def _left(self, number: int, lacking: pa.Array, left: Mapping[int, pa.Array]) -> pa.Array:
        """Of the rows for which no row has the column with this id, those that do not lack a struct around it.
        ``left``: the same of these structs.
        """
        for each in self._columns[number].around:
            if each in left:
                lacking = pc.and_(lacking, pc.invert(left[each]))
        return lacking

    def without_value(self, joined: Joined) -> set[int]:
        """The columns that a row still lacks, and that are null in it."""
        texts = {text: kept_ids(text) for text in joined.kept.unique().to_pylist() if text is not None}
        found = set[int]()
        for each in self._columns.keys() & frozenset().union(*texts.values()):
            lacking = pa.array([text for text, ids in texts.items() if each in ids], pa.string())
            column = _at(joined.rows, self._columns[each].path)
            if column.filter(pc.is_in(joined.kept, value_set=lacking)).null_count:
                found.add(each)
        return found

    def settled(self, joined: Joined) -> Joined:
        """The rows with null instead of lists that still have steps: there is no list that these change."""
        if not any("{" in text for text in joined.kept.unique().to_pylist() if text is not None):
            return joined
        texts = joined.kept.to_pylist()
        steps = [{} if text is None else kept_steps(text) for text in texts]
        rows = joined.rows
        for each in sorted({number for of_row in steps for number in of_row} & self._columns.keys()):
            path = self._columns[each].path
            own = pa.array([None if each in of_row else row for row, of_row in enumerate(steps)], pa.int64())
            rows = _with(rows, path, _at(rows, path), own)
        kept = [
            text and kept_text({*kept_ids(text), *of_row}, rootless=text.startswith(ROOTLESS))
            for text, of_row in zip(texts, steps, strict=True)
        ]
        return replace(joined, rows=rows, kept=pa.array(kept, pa.string()))

    def _depth(self, number: int) -> tuple[int, int]:
        column = self._columns.get(number)
        return 0 if column is None else len(column.path), number

    def _with_inner(self, ids: frozenset[int]) -> frozenset[int]:
        """Also the ids of what is inside of structs among these."""
        return ids.union(*(self._inside[each] for each in ids if each in self._inside))

    def _with_lists(
        self,
        made: pa.RecordBatch,
        column: _Column,
        rows: pa.RecordBatch,
        keys: pa.Array,
        chains: Mapping[int, Chain],
        left: defaultdict[int, dict[int, Sequence[Step]]],
    ) -> pa.RecordBatch:
        """The rows with the lists of one column that steps change. ``chains``: by number of the key. ``left``: for each
        row, the steps for which there is no list yet.
        """
        places = {number: place for place, number in enumerate(keys.to_pylist()) if number in chains}
        whole = [number for number, chain in chains.items() if chain[0][1] is None]
        other = [number for number, chain in chains.items() if chain[0][1] is not None]
        given = cast("pa.ListArray", _at(rows, column.path))
        kind = column.field.field_type
        assert isinstance(kind, ListType)  # noqa: S101 - only lists have steps
        full = joined(given, [chains[number] for number in whole], _joining(kind))
        more, steps = appended(given, [chains[number] for number in other])
        for number, of_key in zip(other, steps, strict=True):
            left[places[number]][column.field.field_id] = of_key
        source = [*range(made.num_rows)]
        for place, number in enumerate((*whole, *other)):
            source[places[number]] = made.num_rows + place
        current = _at(made, column.path)
        every = pa.concat_arrays([current, full, more])
        return _with(made, column.path, every, pa.array(source, pa.int64()))


def _columns(fields: Sequence[NestedField], path: tuple[int, ...], around: tuple[int, ...]) -> Iterator[_Column]:
    for place, field in enumerate(fields):
        yield _Column(field, (*path, place), around)
        if isinstance(field.field_type, StructType):
            yield from _columns(field.field_type.fields, (*path, place), (*around, field.field_id))


def _joining(kind: ListType) -> Join:
    """Joins the elements of such lists, which are structs."""

    def join(parts: pa.StructArray, numbers: pa.Array, kept: pa.Array) -> pa.StructArray:
        rows = pa.RecordBatch.from_arrays(children_of(parts), schema=pa.schema([*parts.type]))
        assert isinstance(kind.element_type, StructType)  # noqa: S101 - only structs lack columns
        of_elements = PartialRows(Schema(*kind.element_type.fields))
        done = of_elements.settled(of_elements.join(rows, KeyRuns.of(numbers), kept))
        return struct(done.rows.columns, parts.type, None, done.rows.num_rows)

    return join


def _chains(
    number: int, runs: KeyRuns, first: Mapping[int, int], lacking: Lacking, lacks: Sequence[Set[int]]
) -> dict[int, Chain]:
    """For each key with steps for the list with this id, the rows that have it or steps for it, from the last one that
    has it. ``first``: where the rows of each key begin that count.
    """
    steps = [kept_steps(text).get(number) for text in lacking.texts]
    changing = lacking.is_so([found is not None for found in steps], otherwise=False)
    concerned = pc.is_in(runs.numbers, value_set=runs.numbers.filter(changing).unique())
    which = pc.indices_nonzero(concerned)
    columns = which, runs.order.take(which), runs.numbers.take(which), lacking.of_rows.take(which)
    chains: dict[int, list[tuple[int, Sequence[Step] | None]]] = defaultdict(list)
    for at, place, key, text in zip(*(column.to_pylist() for column in columns), strict=True):
        own = None if text is None else steps[text]
        if at < first[key] or (own is None and text is not None and number in lacks[text]):
            continue
        if own is None:
            chains[key].clear()
        chains[key].append((place, own))
    return {key: chain for key, chain in chains.items() if any(own is not None for _, own in chain)}


def _at(rows: pa.RecordBatch, path: Sequence[int]) -> pa.Array:
    """The values of a column, possibly within structs."""
    column: pa.Array = rows.column(path[0])
    for index in path[1:]:
        column = children_of(cast("pa.StructArray", column))[index]
    return column


def _taken(rows: pa.RecordBatch, numbers: pa.Array, left_out: Set[int]) -> pa.RecordBatch:
    """The rows with these numbers. Columns at the places ``left_out`` are null."""
    columns = [
        pa.nulls(len(numbers), column.type) if place in left_out else take(column, numbers)
        for place, column in enumerate(rows.columns)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=rows.schema)


def _with(rows: pa.RecordBatch, path: Sequence[int], values: pa.Array, source: pa.Array) -> pa.RecordBatch:
    """The rows with those of the values that ``source`` numbers; null without a number."""
    first, *inner = path
    column = _put(rows.column(first), inner, take(values, source))
    return rows.set_column(first, rows.schema.field(first), column)


def _put(column: pa.Array, path: Sequence[int], values: pa.Array) -> pa.Array:
    """The column with these values at a path through its structs. A struct that is null stays null."""
    if not path:
        return values
    column = cast("pa.StructArray", column)
    parts = children_of(column)
    parts[path[0]] = _put(parts[path[0]], path[1:], values)
    return struct(parts, column.type, column.is_null() if column.null_count else None, len(column))
