"""Cases with tables of format version 3, in Apache's REST catalog; ``make fuzz`` tries new ones."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from calving.services.rest_catalog import RestCatalog
from tests.fuzz import cases
from tests.fuzz.checks import check
from tests.fuzz.sink import Sink

pytestmark = pytest.mark.services
_CASES = range(cases.VERSION_3, cases.VERSION_3 + 12)


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server of its own: a sink drops all tables of its namespace."""
    server = RestCatalog(tmp_path_factory.mktemp("rest"))
    yield server.uri
    server.stop()


@pytest.mark.parametrize("number", (_CASES[0], *_CASES[2:6]))
def test_a_record_becomes_what_the_manual_says_in_version_3(number: int, tmp_path: Path, uri: str) -> None:
    case, sink = cases.make(1, number), Sink(tmp_path / "warehouse", uri)
    try:
        assert check(case.only(case.places[:15]), sink) == []
    finally:
        sink.close()


def test_the_cases_of_version_3_draw_columns_in_nanoseconds() -> None:
    schemas = [target.schema for number in _CASES for target in cases.make(1, number).targets]
    kinds = {str(field.field_type) for schema in schemas if schema is not None for field in schema.fields}
    assert {"timestamp_ns", "timestamptz_ns"} <= kinds
