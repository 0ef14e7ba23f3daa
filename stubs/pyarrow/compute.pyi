"""The functions keep the shape of what they are given: an array, an array of chunks, or one value."""

from collections.abc import Sequence
from typing import Literal, Protocol, TypeAlias, TypeVar, overload, type_check_only

from .lib import (
    Array,
    ChunkedArray,
    DataType,
    Int64Array,
    LargeListArray,
    ListArray,
    MemoryPool,
    RecordBatch,
    RunEndEncodedArray,
    Scalar,
    StructArray,
    StructScalar,
    Table,
    _Value,
)

_Shape = TypeVar("_Shape", Array, ChunkedArray, Scalar)
_Column = TypeVar("_Column", bound=Array | ChunkedArray)
_Data = TypeVar("_Data", bound=Array | ChunkedArray | RecordBatch | Table)
_One: TypeAlias = Scalar | _Value
_Flat: TypeAlias = Array | _One

class FunctionOptions: ...

# Of one value

def abs(x: _Shape, /, *, memory_pool: MemoryPool | None = None) -> _Shape: ...
def ascii_ltrim(
    strings: _Shape,
    /,
    characters: str,
    *,
    options: FunctionOptions | None = None,
    memory_pool: MemoryPool | None = None,
) -> _Shape: ...
def ascii_rtrim(
    strings: _Shape,
    /,
    characters: str,
    *,
    options: FunctionOptions | None = None,
    memory_pool: MemoryPool | None = None,
) -> _Shape: ...
def binary_length(strings: _Shape, /, *, memory_pool: MemoryPool | None = None) -> _Shape: ...
def binary_slice(
    strings: _Shape,
    /,
    start: int,
    stop: int | None = None,
    step: int = 1,
    *,
    options: FunctionOptions | None = None,
    memory_pool: MemoryPool | None = None,
) -> _Shape: ...
def floor(x: _Shape, /, *, memory_pool: MemoryPool | None = None) -> _Shape: ...
def inverse_permutation(
    indices: _Shape,
    /,
    max_index: int = -1,
    output_type: DataType | None = None,
    *,
    options: FunctionOptions | None = None,
    memory_pool: MemoryPool | None = None,
) -> _Shape: ...
def invert(values: _Shape, /, *, memory_pool: MemoryPool | None = None) -> _Shape: ...
def is_finite(values: _Shape, /, *, memory_pool: MemoryPool | None = None) -> _Shape: ...
def is_in(
    values: _Shape,
    /,
    value_set: Array | ChunkedArray,
    *,
    skip_nulls: bool = False,
    options: FunctionOptions | None = None,
    memory_pool: MemoryPool | None = None,
) -> _Shape: ...
def is_inf(values: _Shape, /, *, memory_pool: MemoryPool | None = None) -> _Shape: ...
def is_nan(values: _Shape, /, *, memory_pool: MemoryPool | None = None) -> _Shape: ...
def is_null(
    values: _Shape,
    /,
    *,
    nan_is_null: bool = False,
    options: FunctionOptions | None = None,
    memory_pool: MemoryPool | None = None,
) -> _Shape: ...
def is_valid(values: _Shape, /, *, memory_pool: MemoryPool | None = None) -> _Shape: ...
def index_in(
    values: _Shape,
    /,
    value_set: Array | ChunkedArray,
    *,
    skip_nulls: bool = False,
    options: FunctionOptions | None = None,
    memory_pool: MemoryPool | None = None,
) -> _Shape: ...
def count_substring(
    strings: _Shape,
    /,
    pattern: str,
    *,
    ignore_case: bool = False,
    options: FunctionOptions | None = None,
    memory_pool: MemoryPool | None = None,
) -> _Shape: ...
def match_substring_regex(
    strings: _Shape,
    /,
    pattern: str,
    *,
    ignore_case: bool = False,
    options: FunctionOptions | None = None,
    memory_pool: MemoryPool | None = None,
) -> _Shape: ...
def replace_substring_regex(
    strings: _Shape,
    /,
    pattern: str,
    replacement: str,
    *,
    max_replacements: int | None = None,
    options: FunctionOptions | None = None,
    memory_pool: MemoryPool | None = None,
) -> _Shape: ...
def round(
    x: _Shape,
    /,
    ndigits: int = 0,
    round_mode: str = "half_to_even",
    *,
    options: FunctionOptions | None = None,
    memory_pool: MemoryPool | None = None,
) -> _Shape: ...
def struct_field(
    values: _Shape,
    /,
    indices: str | int | Sequence[str | int],
    *,
    options: FunctionOptions | None = None,
    memory_pool: MemoryPool | None = None,
) -> _Shape: ...
def trunc(x: _Shape, /, *, memory_pool: MemoryPool | None = None) -> _Shape: ...
def utf8_lpad(
    strings: _Shape,
    /,
    width: int,
    padding: str = " ",
    lean_left_on_odd_padding: bool = True,
    *,
    options: FunctionOptions | None = None,
    memory_pool: MemoryPool | None = None,
) -> _Shape: ...
def utf8_rtrim(
    strings: _Shape,
    /,
    characters: str,
    *,
    options: FunctionOptions | None = None,
    memory_pool: MemoryPool | None = None,
) -> _Shape: ...
def utf8_slice_codeunits(
    strings: _Shape,
    /,
    start: int,
    stop: int | None = None,
    step: int = 1,
    *,
    options: FunctionOptions | None = None,
    memory_pool: MemoryPool | None = None,
) -> _Shape: ...
def utf8_trim_whitespace(strings: _Shape, /, *, memory_pool: MemoryPool | None = None) -> _Shape: ...
def utf8_upper(strings: _Shape, /, *, memory_pool: MemoryPool | None = None) -> _Shape: ...

# Of two values

@type_check_only
class _Binary(Protocol):
    @overload
    def __call__(self, x: Array, y: _Flat, /, *, memory_pool: MemoryPool | None = None) -> Array: ...
    @overload
    def __call__(self, x: _One, y: Array, /, *, memory_pool: MemoryPool | None = None) -> Array: ...
    @overload
    def __call__(self, x: _One, y: _One, /, *, memory_pool: MemoryPool | None = None) -> Scalar: ...
    @overload
    def __call__(
        self, x: ChunkedArray, y: ChunkedArray | _Flat, /, *, memory_pool: MemoryPool | None = None
    ) -> ChunkedArray: ...
    @overload
    def __call__(self, x: _Flat, y: ChunkedArray, /, *, memory_pool: MemoryPool | None = None) -> ChunkedArray: ...

add: _Binary
and_: _Binary
bit_wise_and: _Binary
bit_wise_or: _Binary
bit_wise_xor: _Binary
divide: _Binary
equal: _Binary
greater: _Binary
greater_equal: _Binary
less: _Binary
multiply: _Binary
multiply_checked: _Binary
not_equal: _Binary
or_: _Binary
shift_left: _Binary
shift_right: _Binary
subtract: _Binary
subtract_checked: _Binary

# Of several values: calving gives the first of them as a column.

def binary_join_element_wise(
    *strings: _Flat,
    null_handling: Literal["emit_null", "skip", "replace"] = "emit_null",
    null_replacement: str = "",
    options: FunctionOptions | None = None,
    memory_pool: MemoryPool | None = None,
) -> Array: ...
def case_when(cond: StructArray, /, *cases: _Flat, memory_pool: MemoryPool | None = None) -> Array: ...
def extract_regex(
    strings: Array, /, pattern: str, *, options: FunctionOptions | None = None, memory_pool: MemoryPool | None = None
) -> StructArray: ...
def coalesce(*values: _Flat, memory_pool: MemoryPool | None = None) -> Array: ...
def fill_null(values: _Column, fill_value: _One | Array) -> _Column: ...
def max_element_wise(
    *args: _Flat,
    skip_nulls: bool = True,
    options: FunctionOptions | None = None,
    memory_pool: MemoryPool | None = None,
) -> Array: ...
def fill_null_forward(values: Array, /, *, memory_pool: MemoryPool | None = None) -> Array: ...
@overload
def if_else(cond: Array, left: _Flat, right: _Flat, /, *, memory_pool: MemoryPool | None = None) -> Array: ...
@overload
def if_else(
    cond: ChunkedArray,
    left: ChunkedArray | _Flat,
    right: ChunkedArray | _Flat,
    /,
    *,
    memory_pool: MemoryPool | None = None,
) -> ChunkedArray: ...
def make_struct(
    *args: _Flat,
    field_names: Sequence[str] = (),
    field_nullability: Sequence[bool] | None = None,
    field_metadata: Sequence[object] | None = None,
    options: FunctionOptions | None = None,
    memory_pool: MemoryPool | None = None,
) -> StructArray: ...

# Of a whole column

def all(
    array: Array | ChunkedArray,
    /,
    *,
    skip_nulls: bool = True,
    min_count: int = 1,
    options: FunctionOptions | None = None,
    memory_pool: MemoryPool | None = None,
) -> Scalar: ...
def any(
    array: Array | ChunkedArray,
    /,
    *,
    skip_nulls: bool = True,
    min_count: int = 1,
    options: FunctionOptions | None = None,
    memory_pool: MemoryPool | None = None,
) -> Scalar: ...
def count_distinct(
    array: Array | ChunkedArray,
    /,
    mode: Literal["only_valid", "only_null", "all"] = "only_valid",
    *,
    options: FunctionOptions | None = None,
    memory_pool: MemoryPool | None = None,
) -> Scalar: ...
def max(
    array: Array | ChunkedArray,
    /,
    *,
    skip_nulls: bool = True,
    min_count: int = 1,
    options: FunctionOptions | None = None,
    memory_pool: MemoryPool | None = None,
) -> Scalar: ...
def min_max(
    array: Array | ChunkedArray,
    /,
    *,
    skip_nulls: bool = True,
    min_count: int = 1,
    options: FunctionOptions | None = None,
    memory_pool: MemoryPool | None = None,
) -> StructScalar: ...
def sum(
    array: Array | ChunkedArray,
    /,
    *,
    skip_nulls: bool = True,
    min_count: int = 1,
    options: FunctionOptions | None = None,
    memory_pool: MemoryPool | None = None,
) -> Scalar: ...
def cumulative_max(
    values: _Column,
    /,
    start: _One = None,
    *,
    skip_nulls: bool = False,
    options: FunctionOptions | None = None,
    memory_pool: MemoryPool | None = None,
) -> _Column: ...
def cumulative_sum(
    values: _Column,
    /,
    start: _One = None,
    *,
    skip_nulls: bool = False,
    options: FunctionOptions | None = None,
    memory_pool: MemoryPool | None = None,
) -> _Column: ...
def filter(
    input: _Data,
    selection_filter: Array | ChunkedArray,
    /,
    null_selection_behavior: Literal["drop", "emit_null"] = "drop",
    *,
    options: FunctionOptions | None = None,
    memory_pool: MemoryPool | None = None,
) -> _Data: ...
def indices_nonzero(values: Array | ChunkedArray, /, *, memory_pool: MemoryPool | None = None) -> Array: ...
@overload
def list_parent_indices(
    lists: ListArray | LargeListArray, /, *, memory_pool: MemoryPool | None = None
) -> Int64Array: ...
@overload
def list_parent_indices(lists: ChunkedArray, /, *, memory_pool: MemoryPool | None = None) -> ChunkedArray: ...
def value_counts(array: Array | ChunkedArray, /, *, memory_pool: MemoryPool | None = None) -> StructArray: ...
def run_end_encode(
    array: Array,
    /,
    run_end_type: DataType = ...,
    *,
    options: FunctionOptions | None = None,
    memory_pool: MemoryPool | None = None,
) -> RunEndEncodedArray: ...
def scatter(
    values: Array,
    indices: Array,
    /,
    max_index: int = -1,
    *,
    options: FunctionOptions | None = None,
    memory_pool: MemoryPool | None = None,
) -> Array: ...
@overload
def search_sorted(
    values: Array | ChunkedArray,
    needles: Array,
    /,
    side: Literal["left", "right"] = "left",
    *,
    options: FunctionOptions | None = None,
    memory_pool: MemoryPool | None = None,
) -> Array: ...
@overload
def search_sorted(
    values: Array | ChunkedArray,
    needles: _One,
    /,
    side: Literal["left", "right"] = "left",
    *,
    options: FunctionOptions | None = None,
    memory_pool: MemoryPool | None = None,
) -> Scalar: ...
def sort_indices(
    input: Array | ChunkedArray | RecordBatch | Table,
    /,
    sort_keys: Sequence[tuple[str | int, str]] = (),
    *,
    null_placement: Literal["at_start", "at_end"] | None = None,
    options: FunctionOptions | None = None,
    memory_pool: MemoryPool | None = None,
) -> Array: ...
def take(
    data: _Data,
    indices: Array | ChunkedArray | Sequence[int],
    *,
    boundscheck: bool = True,
    memory_pool: MemoryPool | None = None,
) -> _Data: ...
