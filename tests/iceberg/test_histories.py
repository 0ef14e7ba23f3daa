"""One seed of every combination of ``acceptance.py``, which has many."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyroaring import BitMap64

from calving.iceberg.catalog import open_catalog
from calving.iceberg.deletions import Deletions
from tests.iceberg.acceptance import COMBINATIONS, played


@pytest.mark.parametrize(
    ("mode", "layout", "control"),
    # Version 3 takes a catalog that is a process of its own.
    [pytest.param(*each, marks=[pytest.mark.services] if each[0] == "version 3" else []) for each in COMBINATIONS],
)
def test_a_history_leaves_what_a_replay_in_the_order_of_offsets_leaves(
    tmp_path: Path, request: pytest.FixtureRequest, mode: str, layout: str, control: int
) -> None:
    keys = {"type": "embedded", "warehouse": str(tmp_path)}
    if mode == "version 3":
        keys = {"type": "rest", "uri": request.getfixturevalue("rest_uri")}
    history = played(open_catalog("iceberg", keys), mode, layout, control, 1000)
    assert history.counts["commits"] > 1


def test_a_history_notices_that_earlier_deletes_of_a_file_are_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Deletions, "before", lambda deletions, path: BitMap64())
    with pytest.raises(AssertionError):
        played(open_catalog("iceberg", {"type": "embedded", "warehouse": str(tmp_path)}), "version 2", "flat", 1, 1000)
