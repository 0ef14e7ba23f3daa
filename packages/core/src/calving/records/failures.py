"""Decides whether a retry after an exception may help."""

from __future__ import annotations

import pyarrow as pa

from calving.errors import BadRecordError

_OF_VALUES = (
    BadRecordError,
    ValueError,
    TypeError,
    ArithmeticError,
    LookupError,
    AttributeError,
    AssertionError,
    RecursionError,
    NotImplementedError,
    pa.ArrowInvalid,
    pa.ArrowTypeError,
    pa.ArrowNotImplementedError,
)


def is_of_value(error: BaseException) -> bool:
    """Whether the values cause the error. Then a retry would fail again; otherwise a retry may help.

    A panic in a Rust library is not an ``Exception``, but a retry does not help either.
    """
    if isinstance(error, OSError):
        return False
    return isinstance(error, _OF_VALUES) or type(error).__name__ == "PanicException"
