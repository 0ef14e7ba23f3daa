"""Reads the files of a table. A missing file is a finding; a store that does not answer ends the audit."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyiceberg.io import FileIO

from calving.errors import UnavailableError
from calving.storage_errors import described, store_error


class DamagedFileError(ValueError):
    """A file is not what its entry says, or cannot be decoded. The text says why."""


class AuditedStore:
    """The files of one table. Its methods may be called by several threads."""

    def __init__(self, io: FileIO) -> None:
        self._io = io

    @contextmanager
    def open(self, path: str) -> Iterator[Any]:
        """The content of a file, as a stream that can seek.

        :raises FileNotFoundError: there is no such file. :raises UnavailableError: the store does not give it.
        """
        with _reaching(path):
            stream = self._io.new_input(path).open()
        with stream:
            yield stream

    def read(self, path: str) -> bytes:
        """The whole content of a file; errors as of ``open``."""
        with self.open(path) as stream, _reaching(path):
            return bytes(stream.read())

    def size(self, path: str) -> int:
        """The bytes of a file; errors as of ``open``."""
        with _reaching(path):
            return len(self._io.new_input(path))


@contextmanager
def _reaching(path: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise
    except Exception as error:  # each store has errors of its own
        of_store = store_error(error)
        if of_store is not None:
            raise of_store from error
        raise UnavailableError(f"{path} cannot be read: {described(error)}") from error
