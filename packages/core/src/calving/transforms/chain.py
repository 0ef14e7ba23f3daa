"""Runs a chain of transforms, and separates the records that a step rejects."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from calving.errors import CalvingError
from calving.model.dead_letters import Stage
from calving.model.record_path import Limits, TransformSpec
from calving.records.arrays import children_of, is_flat
from calving.records.contents import BESIDE_ROWS, SHAPES
from calving.records.failures import pass_on
from calving.records.values import RecordError, Records
from calving.transforms.columns import rows_without_utf8
from calving.transforms.interface import NO_FIELDS, Column, Predicate, RefusedError, Transform, UnfitTypeError
from calving.transforms.registry import is_foreign, predicate, transform
from calving.transforms.tracing import presence_before
from calving.transforms.transformed import Transformed, apart

_ONE_BY_ONE = 16
"""At most this many records are tried one by one to find a rejected record: halving them would take as many
attempts.
"""
_SPARSE = 4
"""Records at fewer than every fourth place of their block are looked up by a search, without a look at each place."""


@dataclass(frozen=True, slots=True)
class _Step:
    name: str
    transform: Transform
    predicate: Predicate | None
    negate: bool
    foreign: bool

    def chosen(self, records: Records) -> pa.Array | None:
        """A mask of the records to which the transform applies; None if it applies to all.

        :raises Exception: whatever the predicate raises; ValueError if its mask has nulls.
        """
        chosen = None
        if self.predicate is not None:
            chosen = self.predicate.test(records)
            if len(chosen) != len(records) or chosen.null_count:
                raise ValueError("its predicate says neither true nor false")
            chosen = pc.invert(chosen) if self.negate else chosen
        if not self.transform.tombstones and records.value.null_count:
            present = records.value.is_valid()
            chosen = present if chosen is None else pc.and_(chosen, present)
        return None if chosen is None or pc.all(chosen).as_py() else chosen


_Again = Callable[[_Step, Records, Transformed], None]


class Chain:
    def __init__(
        self,
        specs: Sequence[TransformSpec],
        *,
        images: bool = True,
        fold: bool = False,
        limits: Limits | None = None,
        reads_topic: Callable[[str], bool] = lambda topic: False,
    ) -> None:
        """``images``: whether before images are needed. ``fold``: fields whose names differ only by case go to one
        column. ``reads_topic``: as ``Transform.reads_topic``.

        :raises ConfigError: a type is not known, or an option is wrong.
        """
        self._steps = [
            _Step(
                spec.name,
                transform(spec.name, spec.type, spec.options),
                None if spec.predicate is None else predicate(spec.name, spec.predicate),
                spec.negate,
                is_foreign(spec.type),
            )
            for spec in specs
        ]
        for step in self._steps:
            step.transform.images, step.transform.fold, step.transform.reads_topic = images, fold, reads_topic
            step.transform.limit(limits or Limits())
        self.needs: frozenset[Column] = frozenset().union(
            *(s.transform.needs | (s.predicate.needs if s.predicate else frozenset()) for s in self._steps)
        )

    @property
    def null_types(self) -> frozenset[str] | None:
        """As ``Transform.null_types``, of all steps, for the values that the first one gets."""
        types: set[str] = set()
        keeps_names = True
        for step in self._steps:
            wanted = [step.transform.null_types, NO_FIELDS if step.predicate is None else step.predicate.null_types]
            names = None if None in wanted else frozenset[str]().union(*(each for each in wanted if each))
            if names is None or (names and not keeps_names):
                return None
            types |= names
            keeps_names = keeps_names and step.transform.keeps_names
        return frozenset(types)

    def presence(self, names: frozenset[str]) -> Container[str]:
        """As ``presence_before``, of all steps."""
        return presence_before(((s.transform, s.predicate is None) for s in reversed(self._steps)), names)

    def leaves(self, kind: pa.DataType) -> pa.DataType | None:
        """The type that values of this type have after all steps; None if some step may depend on the order of fields
        in objects.
        """
        for step in self._steps:
            if not pa.types.is_nested(kind):
                return kind
            after = step.transform.becomes(kind) if step.predicate is None else None
            if after is None:
                if step.transform.ordered or not is_flat(kind):
                    return None
                after = kind  # the fields may differ, but none is an object
            kind = after
        return kind

    def __bool__(self) -> bool:
        return bool(self._steps)

    def apply(self, records: Records) -> Transformed:
        """Apply all steps, in order.

        :raises CalvingError: an error that no record causes.
        """
        result = Transformed([records])
        for step in self._steps:
            parts, result.records = result.records, []
            for part in parts:
                _choose(step, part, result)
        return apart(result)


def _choose(step: _Step, records: Records, result: Transformed) -> None:
    """Apply the step to the records that its predicate chooses."""
    try:
        chosen = step.chosen(records)
    except CalvingError:
        raise
    except Exception as error:  # of any library
        pass_on(error)
        _failed(step, records, error, result, _choose)
        return
    if chosen is None:
        _run(step, records, result)
    else:
        _run(step, records.take(chosen), result)
        result.records.append(records.take(pc.invert(chosen)))


def _run(step: _Step, records: Records, result: Transformed) -> None:
    if not len(records):
        return
    try:
        parts = _parts(step.transform.apply(records))
    except CalvingError:
        raise
    except Exception as error:  # of any library
        pass_on(error)
        _failed(step, records, error, result, _run)
        return
    parts = _with_content(step, records, parts)
    rows = [part for part in parts if part.content not in BESIDE_ROWS]
    if records.content not in BESIDE_ROWS and not (len(rows) == 1 and rows[0].index is records.index):
        beside = [part for part in parts if part.content in BESIDE_ROWS]
        parts = [*_once(step, records, rows, result), *beside]
    result.records += [left for part in parts if len(left := _readable(step, part, result))]


def _with_content(step: _Step, records: Records, parts: list[Records]) -> list[Records]:
    """The parts, whose content is that of the records from which a transform has made them."""
    if records.content == "partial row" and not step.transform.keeps_paths:
        return [replace(part, content="changed fields") for part in parts]
    if records.content == "row":
        return parts
    return [part if part.content != "row" else replace(part, content=records.content) for part in parts]


def _readable(step: _Step, records: Records, result: Transformed) -> Records:
    """The records without those that have a text that is no UTF-8, which nobody could read from the table."""
    if not step.foreign:
        return records
    columns = {"the topic": records.topic, "the key": records.key, "a header": records.headers}
    if isinstance(records.value, pa.StructArray):
        fields = zip(records.value.type, children_of(records.value), strict=True)
        columns |= {f"field '{field.name}'": child for field, child in fields}
    else:
        columns["the value"] = records.value
    bad = {row: name for name, column in columns.items() for row in rows_without_utf8(column)}
    return _others(step, records, {row: f"{name} has a text that is no UTF-8" for row, name in bad.items()}, result)


def _parts(after: Any) -> list[Records]:
    """:raises TypeError: a transform has returned something else."""
    parts: list[Records] = after if isinstance(after, list) else [after]
    if wrong := [part for part in parts if not isinstance(part, Records)]:
        raise TypeError(f"it has returned {type(wrong[0]).__name__}, and not records")
    return parts


def _once(step: _Step, records: Records, parts: Sequence[Records], result: Transformed) -> list[Records]:
    """The parts, with one row at most for each of ``records``. Which ones a transform has returned, ``index`` tells."""
    places = pa.concat_arrays([pa.array([], pa.int32()), *(part.index for part in parts)])
    is_there = _each_once(records.index, places)
    if is_there is None:
        return _searched(step, records, parts, places, result)
    _account(step, records, is_there, len(places), False, result)
    return [*parts]


def _each_once(index: pa.Array, places: pa.Array) -> pa.Array | None:
    """Whether each record of ``index`` has one of ``places``. None if some place is there twice or is no record's, or
    if the records are too sparse to say so without a search.
    """
    last = pc.max(index).as_py()
    bounds = pc.min_max(places)
    if last >= len(index) * _SPARSE or not len(places):
        return None
    if bounds["min"].as_py() < 0 or bounds["max"].as_py() > last:
        return None
    rows = pc.inverse_permutation(places, max_index=last)
    if len(rows) - rows.null_count < len(places):
        return None
    rows = rows.take(index)
    return rows.is_valid() if len(rows) - rows.null_count == len(places) else None


def _account(
    step: _Step, records: Records, is_there: pa.Array, returned: int, strange: bool, result: Transformed
) -> None:
    """Refuse the records that a transform may not leave out, and count those that it may. ``strange``: it has also
    returned records that it did not get.
    """
    if strange or (returned < len(records) and not step.transform.drops):
        _refuse_missing(step, records.take(pc.invert(is_there)), strange, result)
    elif returned < len(records):
        which = step.transform.dropped_as(records.take(pc.invert(is_there)))
        result.dropped[f"transform {step.name}{which and f': {which}'}"] += len(records) - returned


def _searched(
    step: _Step, records: Records, parts: Sequence[Records], places: pa.Array, result: Transformed
) -> list[Records]:
    """As ``_once``, for any ``places``."""
    is_there = pc.is_in(records.index, places)
    returned = pc.sum(is_there).as_py() or 0
    # As many places as records with one: each place is of a record, and of another one.
    strange = returned < len(places) and not pc.all(pc.is_in(places, records.index)).as_py()
    _account(step, records, is_there, returned, strange, result)
    if returned == len(places):
        return [*parts]
    counts = places.value_counts()
    several = pc.is_in(records.index, counts.field("values").filter(pc.greater(counts.field("counts"), 1)))
    _refuse(step, records.take(several), ValueError("it has returned several rows for the record"), result)
    kept = records.index.filter(pc.invert(several))
    return [part.take(pc.is_in(part.index, kept)) for part in parts]


def _failed(step: _Step, records: Records, error: Exception, result: Transformed, again: _Again) -> None:
    """Reject the records that cause the error, and treat the others ``again``."""
    if records.content == "truncate":
        result.records.append(records)  # without a row, the transform has nothing to do
    elif isinstance(error, RefusedError) and error.reasons:
        _without(step, records, error.reasons, result, again)
    elif isinstance(error, UnfitTypeError) or len(records) == 1:
        _refuse(step, records, error, result)
    else:
        _search(step, records, result, again)


def _refuse_missing(step: _Step, missing: Records, strange: bool, result: Transformed) -> None:
    """Reject the records that a transform has left out, although it says that it drops none, or has returned under
    another ``index`` (``strange``).
    """
    error = ValueError("it has returned nothing for the record; a transform that drops records says so in 'drops'")
    if strange:
        error = ValueError("it has returned records that it did not get; a record keeps its 'index'")
    _refuse(step, missing, error, result)


def _without(step: _Step, records: Records, reasons: Mapping[int, str], result: Transformed, again: _Again) -> None:
    """Reject the records that the transform has named, and apply it to the others."""
    again(step, _others(step, records, reasons, result), result)


def _others(step: _Step, records: Records, reasons: Mapping[int, str], result: Transformed) -> Records:
    """Reject the records at some places, and return the others."""
    if not reasons:
        return records
    taken = [True] * len(records)
    for place, reason in reasons.items():
        taken[place] = False
        _bad_of(records, result).append(_bad(step, records.index[place].as_py(), "ValueError", reason))
    return records.take(pa.array(taken, pa.bool_()))


def _search(step: _Step, records: Records, result: Transformed, again: _Again) -> None:
    """Find the records that cause the error."""
    count = len(records)
    size = 1 if count <= _ONE_BY_ONE else (count + 1) // 2
    for start in range(0, count, size):
        again(step, records.slice(start, min(start + size, count)), result)


def _refuse(step: _Step, records: Records, error: Exception, result: Transformed) -> None:
    reason = str(error) or type(error).__name__
    bad = [_bad(step, place, type(error).__name__, reason) for place in records.index.to_pylist()]
    _bad_of(records, result).extend(bad)


def _bad_of(records: Records, result: Transformed) -> list[RecordError]:
    """Where the errors of these records belong."""
    if records.content in SHAPES:
        return result.bad_shapes
    return result.bad_images if records.content == "before image" else result.bad


def _bad(step: _Step, place: int, error: str, reason: str) -> RecordError:
    return RecordError(place, Stage.TRANSFORMATION, error, f"transform '{step.name}': {reason}")
