"""Errors on their way to Spark, which shows them whole, with their tracebacks and causes (S17)."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager

from calving.errors import CalvingError, UnexpectedError
from calving.secrets import masked


@contextmanager
def no_secrets_in_errors() -> Iterator[None]:
    """An error whose traceback would show a secret of the options loses its causes; one of a library becomes ours.

    :raises UnexpectedError: in place of an error of a library that shows a secret.
    """
    try:
        yield
    except Exception as error:
        shown = "".join(traceback.format_exception(error))
        if masked(shown) == shown:
            raise
        if isinstance(error, CalvingError):  # its own text is masked
            raise error from None
        raise UnexpectedError(f"{type(error).__name__}: {error}") from None
