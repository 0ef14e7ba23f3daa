"""Mirrors of source tables that are always tried; ``make fuzz`` tries new ones."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.registry import SchemaRegistry, serving
from tests.fuzz import changes


@pytest.fixture(scope="module")
def registry() -> Iterator[SchemaRegistry]:
    with serving() as made:
        yield made


@pytest.mark.parametrize("number", (0, 2, 4, 5))
def test_a_mirror_has_exactly_the_rows_of_its_source(number: int, tmp_path: Path, registry: SchemaRegistry) -> None:
    assert changes.check(1, number, tmp_path, registry, most=40)[1] == ""
