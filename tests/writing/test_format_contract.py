"""Every file format keeps the contract of formats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import fastavro
import pyarrow.orc as po
import pyarrow.parquet as pq
import pytest

from calving.testing import FormatContract
from calving.testing.formats import Read
from calving.writing.formats.interface import FORMATS


def avro(path: Path) -> Sequence[Mapping[str, Any]]:
    with path.open("rb") as source:
        return list(fastavro.reader(source))  # type: ignore[arg-type]


READERS: dict[str, Read] = {
    "parquet": lambda path: pq.read_table(path).to_pylist(),
    "orc": lambda path: po.ORCFile(path).read().to_pylist(),
    "avro": avro,
}


class TestOurs(FormatContract):
    @pytest.fixture(params=FORMATS.own)
    def name(self, request: pytest.FixtureRequest) -> str:
        return str(request.param)

    @pytest.fixture
    def read(self, name: str) -> Read:
        return READERS[name]
