"""The ways in which steps of the record path fail."""

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


class ExactPathError(Exception):
    """Arrow cannot convert these values together and exactly: they have to take the exact path, one by one."""


def is_of_value(error: BaseException) -> bool:
    """Whether the values cause the error. Then a retry would fail again; otherwise a retry may help.

    A panic in a Rust library is not an ``Exception``, but a retry does not help either.
    """
    if isinstance(error, OSError):
        return False
    return isinstance(error, _OF_VALUES) or type(error).__name__ == "PanicException"
