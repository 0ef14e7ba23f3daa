"""Cases of large blocks that are always tried; ``make fuzz`` tries new ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from calving.iceberg.catalog import open_catalog
from harness.forms import forms
from tests.fuzz import blocks, run_blocks

CASES = (10, 31, 0, 2, 3, 4, 5, 6)
"""The first two have shown that a row group's bounds were those of one of its batches."""


@pytest.mark.parametrize("number", forms(CASES, CASES[::2]))
def test_no_filter_leaves_out_a_file_with_a_row_that_it_wants(number: int, tmp_path: Path) -> None:
    catalog = open_catalog("iceberg", {"type": "embedded", "warehouse": str(tmp_path / "warehouse")})
    assert run_blocks.check(blocks.make(1, number), catalog, tmp_path) == []
