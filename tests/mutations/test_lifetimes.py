"""Some seeds of ``lifetimes.py``, which has many; and broken rules, which it notices."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from calving.mutations import versions as chains
from calving.writing import versions
from tests.mutations.lifetimes import played


@pytest.mark.parametrize("seed", [1, 2, 8])
def test_a_history_leaves_the_versions_of_its_timeline(tmp_path: Path, seed: int) -> None:
    assert played(tmp_path, seed).counts["commits"] > 1


@pytest.mark.services
@pytest.mark.parametrize("seed", [3, 4])
def test_a_history_leaves_the_same_versions_in_version_3(tmp_path: Path, rest_uri: str, seed: int) -> None:
    assert played(tmp_path, seed, rest_uri).counts["commits"] > 1


def end_all_at_their_own_begin(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(versions, "_shifted", lambda values, *, back: values)


def let_clocks_go_back(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(versions, "_ascending", lambda at, begins: at)


def forget_gaps(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(chains, "_insert", chains._follow)


def replace_no_version(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(versions, "_is_next", lambda values: pa.array([False] * len(values)))


@pytest.mark.parametrize(
    ("broken", "seed"),
    [(end_all_at_their_own_begin, 1), (let_clocks_go_back, 1), (forget_gaps, 2), (replace_no_version, 1)],
    ids=lambda value: value.__name__.replace("_", " ") if callable(value) else "",
)
def test_a_history_notices_a_broken_rule(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: Callable[[pytest.MonkeyPatch], None], seed: int
) -> None:
    broken(monkeypatch)
    with pytest.raises(AssertionError, match="the rows"):
        played(tmp_path, seed)
