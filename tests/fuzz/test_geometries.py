"""A short run of the fuzzer of geometries."""

from __future__ import annotations

from tests.fuzz.run_geometries import fuzz


def test_random_geometries_become_what_duckdb_makes_of_their_text() -> None:
    wrong, count = fuzz(seed=1, shapes=3_000)
    assert wrong == []
    assert count >= 15_000
