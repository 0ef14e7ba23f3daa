"""Values of a file in the type that their column has now: the same values, in the same or in a wider type."""

from __future__ import annotations

import pyarrow as pa

_T = pa.types


def widened(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """The values in the type ``kind``, of a table's rows.

    :raises pa.ArrowException: the type does not hold every value of the array's type, or not one of these.
    """
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if _T.is_dictionary(array.type):
        array = array.cast(array.type.value_type)
    storage = kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind
    if array.type != storage:
        if not _holds(storage, array.type):
            raise pa.ArrowTypeError("the types have different values")
        array = array.cast(storage)
    return kind.wrap_array(array) if isinstance(kind, pa.BaseExtensionType) else array


def _holds(kind: pa.DataType, narrow: pa.DataType) -> bool:
    """Whether values of the ``narrow`` type mean the same in ``kind``; a cast finds those that it cannot hold."""
    if _T.is_null(narrow):
        return True
    if _T.is_decimal(kind):
        return _T.is_decimal(narrow) and (kind.scale, kind.precision >= narrow.precision) == (narrow.scale, True)
    if _T.is_timestamp(kind):
        return (_T.is_timestamp(narrow) and (kind.tz is None) == (narrow.tz is None)) or (
            _T.is_date32(narrow) and kind.tz is None
        )
    alike = (
        (_T.is_integer, _T.is_signed_integer),
        (_T.is_floating, _T.is_floating),
        (_T.is_time, lambda each: _T.is_time(each) or _T.is_int64(each)),  # ORC has no times
        (_T.is_string, _is_text),
        (_is_bytes, _is_bytes),
    )
    return any(is_wide(kind) and is_narrow(narrow) for is_wide, is_narrow in alike)


def _is_text(kind: pa.DataType) -> bool:
    return _T.is_string(kind) or _T.is_large_string(kind) or _T.is_string_view(kind)


def _is_bytes(kind: pa.DataType) -> bool:
    one_of = (_T.is_binary, _T.is_large_binary, _T.is_binary_view, _T.is_fixed_size_binary)
    return any(each(kind) for each in one_of)
