"""Writes files into a folder of the test."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema

from calving.model.files import DataFile
from tests.writing import written
from tests.writing.every_type import COLUMNS, SCHEMA
from tests.writing.written import Write


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes the batches, or the rows of every type, with the table's properties."""

    def run(properties: Mapping[str, str], *batches: pa.RecordBatch, schema: Schema = SCHEMA) -> list[DataFile]:
        target = written.table(tmp_path, schema, properties=properties)
        return written.write(target, *(batches or (written.rows(SCHEMA, COLUMNS),)))

    return run
