"""A plan of a table with very many files takes little memory and reads each manifest once."""

from __future__ import annotations

import tracemalloc
from collections import Counter
from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog

from calving.iceberg import live_files
from calving.iceberg.catalog import open_catalog
from calving.iceberg.manifests import read_entries
from harness.planning import make, planned

FILES = 20_000
_MOST_BYTES = 800
"""Of each file that has to be remembered: a million take 800 MB, and the interpreter with its libraries 150."""


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each manifest is read."""
    found: Counter[str] = Counter()

    def counted(io: object, manifest: object, **how: object) -> object:
        found[manifest.manifest_path] += 1  # type: ignore[attr-defined]
        return read_entries(io, manifest, **how)  # type: ignore[arg-type]

    monkeypatch.setattr(live_files, "read_entries", counted)
    return found


def test_each_manifest_is_read_once_and_small_files_of_all_of_them_are_due(
    catalog: Catalog, read: Counter[str]
) -> None:
    make(catalog, FILES, 0.25)
    plan = planned(catalog)
    assert set(read.values()) == {1} and len(read) == 4
    assert (plan["groups"], plan["files"]) == (1000, 5000)


def peak(folder: Path, files: int, small: float) -> int:
    """The most bytes that a plan of such a table takes."""
    folder.mkdir()
    catalog = open_catalog("iceberg", {"type": "embedded", "warehouse": str(folder)})
    make(catalog, files, small)
    planned(catalog)  # what is imported and cached once
    tracemalloc.start()
    try:
        plan = planned(catalog)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert plan["files"] == files * small
    return most


def test_a_plan_remembers_only_what_may_be_due_and_little_of_that(tmp_path: Path) -> None:
    half, whole, small = (
        peak(tmp_path / "a", FILES // 2, 0),
        peak(tmp_path / "b", FILES, 0),
        peak(tmp_path / "c", FILES, 1),
    )
    assert whole - half < 500_000
    assert (small - whole) / FILES < _MOST_BYTES
