"""Entries of the control log that name files which a table appended to holds already: their rows must not come twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from calving.errors import AlreadyHeldError
from calving.iceberg.catalog import open_catalog
from calving.model.offsets import Span
from tests.iceberg.lake import Lake


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(open_catalog("iceberg", {"type": "embedded", "warehouse": str(tmp_path)}), "2", "main")


def test_an_entry_that_comes_again_adds_its_files_no_second_time(lake: Lake) -> None:
    entry = lake.publish(0, 100)
    lake.settle(entry)
    with pytest.raises(AlreadyHeldError, match="it holds offsets 0 to 100"):
        lake.settle(lake.repeat(entry))
    assert lake.rows == list(range(100))


def test_an_entry_that_comes_again_before_it_was_committed_adds_its_files_once(lake: Lake) -> None:
    entry = lake.publish(0, 100)
    lake.settle(entry, lake.repeat(entry))
    assert lake.rows == list(range(100))


def test_an_entry_that_names_a_file_of_the_table_for_other_offsets_that_it_holds_is_refused(lake: Lake) -> None:
    entry = lake.publish(0, 100)
    lake.settle(entry)
    lake.commit(100, 200)
    with pytest.raises(AlreadyHeldError, match="it holds offsets 150 to 200"):
        lake.settle(lake.repeat(entry, Span(150, 210)))
    assert lake.rows == list(range(200))


def test_offsets_that_somebody_made_up_are_noticed_when_their_records_are_published(lake: Lake) -> None:
    """A file of the table, named for offsets that the table does not hold yet: only a forger writes such an entry."""
    entry = lake.publish(0, 100)
    lake.settle(entry)
    lake.settle(lake.repeat(entry, Span(100, 150)))
    with pytest.raises(AlreadyHeldError, match="it holds offsets 100 to 150"):
        lake.commit(100, 200)
