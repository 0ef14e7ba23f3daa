"""The ways in which steps of the record path fail."""

from __future__ import annotations

import pyarrow as pa

from calving.errors import BadRecordError, ConfigError, UnavailableError

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


def pass_on(error: Exception) -> None:
    """Return if a value may be the cause, and raise otherwise: then no record is bad.

    :raises ConfigError: the machine lacks a package, or it is the error. :raises Exception: the error, if it is of a
        service, of a file or of the machine's memory.
    """
    if isinstance(error, ImportError):
        raise ConfigError(
            f"records cannot be read, because the Python of the tasks lacks the package '{error.name}': install it"
            f" where the tasks run ({error})"
        ) from error
    if isinstance(error, (UnavailableError, ConfigError, OSError, MemoryError)):  # Arrow's are among them
        raise error
