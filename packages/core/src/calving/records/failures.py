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
    """Whether the same values would fail in the same way again; else something around them failed, and may pass.

    A panic of a library in Rust is no ``Exception``, but as final as one.
    """
    if isinstance(error, OSError):
        return False
    return isinstance(error, _OF_VALUES) or type(error).__name__ == "PanicException"
