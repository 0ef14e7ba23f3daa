"""A store without room: a FileIO whose files take nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO


class _Full(PyArrowFile):
    def create(self, overwrite: bool = False) -> Any:
        return Path("/dev/full").open("wb", buffering=0)


class FullDisk(PyArrowFileIO):
    def new_output(self, location: str) -> PyArrowFile:
        scheme, netloc, path = self.parse_location(location, self.properties)
        return _Full(fs=self.fs_by_scheme(scheme, netloc), location=location, path=path)
