"""Converts whole columns to Iceberg types with Arrow. If Arrow refuses a column, ``exact`` converts it value by value.

A cast may refuse values that ``exact`` accepts. But if a cast accepts a value, its result is the same as that of
``exact``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    StringType,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from calving.casting.digits import may_lose
from calving.casting.temporal import (
    DAY_SECONDS,
    FIRST_DAY,
    FIRST_MICRO,
    LAST_DAY,
    LAST_MICRO,
    date_text,
    floor_divided,
    time_text,
    timestamp_text,
    timestamptz_text,
)
from calving.casting.texts import plain_text
from calving.records.arrays import as_list, children_of, conform, entries, items_of, lists, maps, offsets_of, struct
from calving.records.encoded import VARIANTS
from calving.records.failures import ExactPathError
from calving.records.fields import Counting, Target
from calving.records.semantics import PER_SECOND, Meaning, SemanticType, moments, plain

REFUSALS = (ExactPathError, ValueError, ArithmeticError, pa.ArrowException)
"""The errors of a cast that leaves its column to the exact path."""


def cast_each(
    columns: Sequence[pa.Array], struct: StructType, wanted: Iterable[pa.Field], target: Target
) -> list[pa.Array | None]:
    """Each of these columns as the column of ``struct`` in its place, in the table's Arrow type. None: it has only
    nulls, or has to take the exact path.
    """
    made: list[pa.Array | None] = []
    for column, field, arrow in zip(columns, struct.fields, wanted, strict=True):
        try:
            rows = cast(column, field.field_type, target, field.field_id)
            is_done = rows.type == arrow.type and not pa.types.is_nested(arrow.type)
            made.append(rows if is_done else conform(rows, arrow.type))
        except REFUSALS:
            made.append(None)
    return made


def cast(column: pa.Array, kind: IcebergType, target: Target, column_id: int) -> pa.Array:
    """``column`` as ``kind``, the type of the table's column with this id; nulls stay nulls.

    :raises ExactPathError, ValueError, pa.ArrowException: a value does not fit, or needs the exact path.
    """
    if pa.types.is_null(column.type) or column.null_count == len(column):
        raise ExactPathError("only nulls")
    if isinstance(column.type, SemanticType):
        column = _meant(column, column.type.meaning, kind)
    if column_id in target.compared and may_lose(column, kind, target.counting(column_id)):
        raise ExactPathError("a value may lose digits")
    match kind:
        case StructType():
            return _struct(column, kind, target)
        case ListType():
            return _list(column, kind, target)
        case MapType():
            return _map(column, kind, target)
    if type(kind) in _MOMENTS:
        return _MOMENTS[type(kind)](column, kind, target.counting(column_id))
    if isinstance(column, pa.ExtensionArray) and column.type == VARIANTS:  # only columns of variants get such
        return column.storage
    if type(kind) not in _CASTS:
        raise ExactPathError(f"columns of type {kind} cannot be written")
    return _CASTS[type(kind)](column, kind)


def _meant(column: pa.Array, meaning: Meaning, kind: IcebergType) -> pa.Array:
    """A column with a meaning in the form in which a column of type ``kind`` takes it."""
    if type(kind) in _MOMENTS and meaning.what != "text":
        if meaning.arrow is None:
            raise ExactPathError(f"{meaning.name} is no moment")
        return moments(column)
    if meaning.what == "decimal" and not isinstance(kind, StructType):
        raise ExactPathError("a decimal whose scale differs from value to value")
    return plain(column)


def _struct(column: pa.Array, kind: StructType, target: Target) -> pa.Array:
    if not isinstance(column, pa.StructArray):
        raise ExactPathError("not a struct")
    children = _children(column, kind, target)
    present = len(column) - column.null_count
    for wanted in kind.fields:
        source = children.get(wanted.field_id)
        if source is None and (default := target.defaults.get(wanted.field_id)) is not None:
            source = children[wanted.field_id] = default.repeated(len(column))
        if wanted.required and (source is None or len(source) - source.null_count < present):
            raise ExactPathError("nulls in a required column")
    columns = [children.get(f.field_id, pa.nulls(len(column))) for f in kind.fields]
    return struct(
        columns,
        pa.struct([(f.name, child.type) for f, child in zip(kind.fields, columns, strict=True)]),
        column.is_null() if column.null_count else None,
        len(column),
    )


def _children(column: pa.StructArray, kind: StructType, target: Target) -> dict[int, pa.Array]:
    """The columns of the fields that are given, by their ids."""
    lookup = target.lookup(kind)
    children: dict[int, pa.Array] = {}
    for field, child in zip(column.type, children_of(column), strict=True):
        wanted = lookup.find(field.name)
        if wanted is None:
            continue
        if wanted.field_id in children:
            raise ExactPathError("two fields for one column")
        children[wanted.field_id] = _child(child, wanted.field_type, target, wanted.field_id)
    return children


def _child(child: pa.Array, kind: IcebergType, target: Target, column_id: int) -> pa.Array:
    if child.null_count == len(child):
        return pa.nulls(len(child))
    return cast(child, kind, target, column_id)


def _list(column: pa.Array, kind: ListType, target: Target) -> pa.Array:
    if not isinstance(column, pa.ListArray) or isinstance(column, pa.MapArray):
        raise ExactPathError("not a list")
    items = _child(items_of(column), kind.element_type, target, kind.element_id)
    if kind.element_required and items.null_count:
        raise ExactPathError("nulls in a required element")
    return lists(offsets_of(column), items, pa.list_(items.type), column.is_null() if column.null_count else None)


def _map(column: pa.Array, kind: MapType, target: Target) -> pa.Array:
    if not isinstance(column, pa.MapArray):
        raise ExactPathError("not a map")
    given, items = entries(column)
    keys = _child(given, kind.key_type, target, kind.key_id)
    items = _child(items, kind.value_type, target, kind.value_id)
    if keys.null_count or (kind.value_required and items.null_count):
        raise ExactPathError("nulls in a required key or value")
    if _may_join(given.type, keys.type) and _repeats(column, keys):
        raise ExactPathError("two keys of a map become one")
    nulls = column.is_null() if column.null_count else None
    return maps(offsets_of(column), keys, items, pa.map_(keys.type, items.type), nulls)


def _may_join(given: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether two values that differ may be equal as the wanted type."""
    return bool(given != wanted and not (pa.types.is_integer(given) and pa.types.is_integer(wanted)))


def _repeats(column: pa.MapArray, keys: pa.Array) -> bool:
    """Whether a map may have two equal keys."""
    if pa.types.is_nested(keys.type):  # Arrow does not compare them
        return True
    pairs = pa.table({"map": pc.list_parent_indices(as_list(column)), "key": keys})
    return bool(pairs.group_by(["map", "key"]).aggregate([]).num_rows < len(keys))


Cast = Callable[[pa.Array, IcebergType], pa.Array]
Reading = Callable[[pa.Array, IcebergType, Counting], pa.Array]
_CASTS: dict[type[IcebergType], Cast] = {}


def _to(*kinds: type[IcebergType]) -> Callable[[Cast], Cast]:
    def register(function: Cast) -> Cast:
        _CASTS.update(dict.fromkeys(kinds, function))
        return function

    return register


@_to(BooleanType)
def _boolean(column: pa.Array, kind: IcebergType) -> pa.Array:
    _only(column, pa.types.is_boolean)
    return column


@_to(IntegerType, LongType)
def _integer(column: pa.Array, kind: IcebergType) -> pa.Array:
    wanted = pa.int32() if isinstance(kind, IntegerType) else pa.int64()
    if pa.types.is_string(column.type):
        # Arrow would accept hexadecimal text as well.
        if not pc.all(pc.match_substring_regex(column, "^-?[0-9]{1,19}$")).as_py():
            raise ExactPathError("not integers")
    else:
        _only(column, pa.types.is_integer, pa.types.is_floating)
    return column if column.type == wanted else column.cast(wanted)


@_to(FloatType)
def _float(column: pa.Array, kind: IcebergType) -> pa.Array:
    _only(column, pa.types.is_integer, pa.types.is_floating)
    if pa.types.is_float32(column.type):
        return column
    double = column.cast(pa.float64(), safe=False)
    single = double.cast(pa.float32(), safe=False)
    if pc.any(pc.and_(pc.is_inf(single), pc.invert(pc.is_inf(double)))).as_py():
        raise ExactPathError("a number does not fit a float")
    return single


@_to(DoubleType)
def _double(column: pa.Array, kind: IcebergType) -> pa.Array:
    _only(column, pa.types.is_integer, pa.types.is_floating)
    return column.cast(pa.float64(), safe=False)


@_to(DecimalType)
def _decimal(column: pa.Array, kind: IcebergType) -> pa.Array:
    _only(column, pa.types.is_integer, pa.types.is_decimal)
    wanted = pa.decimal128(kind.precision, kind.scale)  # type: ignore[attr-defined]
    # 256 bits hold every intermediate value: 38 digits, and up to 38 more for the scale.
    wide = pa.decimal256(76, wanted.scale)
    if pa.types.is_integer(column.type):
        return column.cast(pa.decimal256(20, 0)).cast(wide).cast(wanted)
    if pa.types.is_decimal(column.type) and column.type.scale > wanted.scale:
        column = pc.round(column.cast(pa.decimal256(76, column.type.scale)), wanted.scale, "half_towards_infinity")
    return column.cast(wide).cast(wanted)


@_to(StringType)
def _string(column: pa.Array, kind: IcebergType) -> pa.Array:
    if pa.types.is_string(column.type):
        return column
    if pa.types.is_boolean(column.type):
        return pc.if_else(column, "true", "false")
    _only(column, pa.types.is_integer, pa.types.is_decimal)
    if pa.types.is_decimal(column.type):
        return pa.array([None if v is None else plain_text(v) for v in column.to_pylist()], pa.string())
    return column.cast(pa.string())


@_to(UUIDType)
def _uuid(column: pa.Array, kind: IcebergType) -> pa.Array:
    _only(column, lambda t: t == pa.uuid() or t == pa.binary(16))
    return column.cast(pa.uuid())


@_to(BinaryType)
def _binary(column: pa.Array, kind: IcebergType) -> pa.Array:
    _only(column, pa.types.is_binary, pa.types.is_fixed_size_binary)
    return column.cast(pa.binary())


@_to(FixedType)
def _fixed(column: pa.Array, kind: IcebergType) -> pa.Array:
    _only(column, pa.types.is_binary, pa.types.is_fixed_size_binary)
    return column.cast(pa.binary(len(kind)))  # type: ignore[arg-type]


def _date(column: pa.Array, kind: IcebergType, counting: Counting) -> pa.Array:
    if pa.types.is_string(column.type):
        days = date_text(column)
    else:
        _only(column, pa.types.is_integer, pa.types.is_date32)
        days = column if pa.types.is_date32(column.type) else column.cast(pa.int32()).cast(pa.date32())
    return _known(days, counting, FIRST_DAY, LAST_DAY)


def _time(column: pa.Array, kind: IcebergType, counting: Counting) -> pa.Array:
    if pa.types.is_string(column.type):
        return time_text(column)
    _only(column, pa.types.is_integer, pa.types.is_time)
    if pa.types.is_time(column.type):
        unit, numbers = column.type.unit, column.cast(pa.int32() if column.type.bit_width == 32 else pa.int64())
    else:
        unit, numbers = counting.unit, column
    per_second = PER_SECOND[unit]
    if pc.any(pc.or_(pc.less(numbers, 0), pc.greater_equal(numbers, DAY_SECONDS * per_second))).as_py():
        raise ExactPathError("not a time of day")
    wide = numbers.cast(pa.int64())
    micros = floor_divided(wide, 1000) if unit == "ns" else pc.multiply(wide, 1_000_000 // per_second)
    return micros.cast(pa.time64("us"))


def _timestamp(column: pa.Array, kind: IcebergType, counting: Counting) -> pa.Array:
    unit = "ns" if isinstance(kind, TimestampNanoType | TimestamptzNanoType) else "us"
    instants = _instants(column, kind, unit, counting)
    return instants if unit == "ns" else _known(instants, counting, FIRST_MICRO, LAST_MICRO)


def _instants(column: pa.Array, kind: IcebergType, unit: str, counting: Counting) -> pa.Array:
    zone = "UTC" if isinstance(kind, TimestamptzType | TimestamptzNanoType) else None
    if pa.types.is_string(column.type):
        return timestamp_text(column, unit) if zone is None else timestamptz_text(column, unit)
    if pa.types.is_date32(column.type):
        return column.cast(pa.timestamp("s")).cast(pa.timestamp(unit)).cast(pa.timestamp(unit, zone))
    if pa.types.is_integer(column.type):
        column = column.cast(pa.int64()).cast(pa.timestamp(counting.unit, zone))
    source = column.type
    if not pa.types.is_timestamp(source):
        raise ExactPathError(f"no vectorised cast from {source}")
    if source == pa.timestamp(unit, zone):
        return column
    if source.unit == "ns" and unit == "us":
        return floor_divided(column.cast(pa.int64()), 1000).cast(pa.timestamp(unit, zone))
    return column.cast(pa.timestamp(source.unit, "UTC")).cast(pa.timestamp(unit, "UTC")).cast(pa.timestamp(unit, zone))


_MOMENTS: dict[type[IcebergType], Reading] = {
    DateType: _date,
    TimeType: _time,
    **dict.fromkeys((TimestampType, TimestamptzType, TimestampNanoType, TimestamptzNanoType), _timestamp),
}


def _known(column: pa.Array, counting: Counting, first: int, last: int) -> pa.Array:
    """The column, if all its moments are of the years 1 to 9999, or if moments of any year are taken."""
    if not counting.any_year:
        ends = pc.min_max(column.view(pa.int32() if column.type.bit_width == 32 else pa.int64())).as_py()
        if ends["min"] < first or ends["max"] > last:
            raise ExactPathError("a moment outside the years 1 to 9999")
    return column


def _only(column: pa.Array, *accepted: Callable[[pa.DataType], bool]) -> None:
    if not any(accepts(column.type) for accepts in accepted):
        raise ExactPathError(f"no vectorised cast from {column.type}")
