"""Some seeds of ``histories.py``, which has many; and broken rules, which it notices."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from calving.mutations import ordering
from calving.mutations.columns import Column
from calving.tasks import mutations, unset_fields
from calving.writing import changes, truncates
from tests.mutations.histories import played


@pytest.mark.parametrize("seed", [4, 17])
def test_a_history_of_records_leaves_what_a_replay_leaves(tmp_path: Path, seed: int) -> None:
    assert played(tmp_path, seed).counts["commits"] > 1


@pytest.mark.parametrize("seed", [1, 5])
def test_a_history_of_partial_updates_leaves_what_a_replay_leaves(tmp_path: Path, seed: int) -> None:
    assert played(tmp_path, seed, partial=True).counts["partial"] > 1


@pytest.mark.parametrize("seed", [2, 6])
def test_a_history_of_updates_without_fields_leaves_what_a_replay_leaves(tmp_path: Path, seed: int) -> None:
    assert played(tmp_path, seed, unset=True).counts["unset"] > 1


@pytest.mark.parametrize("seed", [1, 3])
def test_a_history_of_truncated_sources_leaves_what_a_replay_leaves(tmp_path: Path, seed: int) -> None:
    assert played(tmp_path, seed, sources=True).counts["truncates"] > 1


@pytest.mark.services
@pytest.mark.parametrize("seed", [2])
def test_a_history_of_truncated_sources_leaves_the_same_in_version_3(tmp_path: Path, rest_uri: str, seed: int) -> None:
    assert played(tmp_path, seed, rest_uri, sources=True).counts["truncates"] > 1


@pytest.mark.services
@pytest.mark.parametrize("seed", [4])
def test_a_history_of_updates_without_fields_leaves_the_same_in_version_3(
    tmp_path: Path, rest_uri: str, seed: int
) -> None:
    assert played(tmp_path, seed, rest_uri, unset=True).counts["unset"] > 1


@pytest.mark.services
@pytest.mark.parametrize("seed", [3])
def test_a_history_of_partial_updates_leaves_the_same_in_version_3(tmp_path: Path, rest_uri: str, seed: int) -> None:
    assert played(tmp_path, seed, rest_uri, partial=True).counts["partial"] > 1


@pytest.mark.services
@pytest.mark.parametrize("seed", [2, 11])
def test_a_history_of_records_leaves_the_same_in_version_3(tmp_path: Path, rest_uri: str, seed: int) -> None:
    assert played(tmp_path, seed, rest_uri).counts["commits"] > 1


def compare_letter_by_letter(patch: pytest.MonkeyPatch) -> None:
    for module in (changes, ordering):
        patch.setattr(module, "order_keys", lambda column, kind: column)


def keep_rows_under_their_old_keys(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(mutations, "moved", lambda *given: iter(()))


def take_null_for_a_default(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Column, "missing", lambda column, rows: pa.nulls(rows, column.arrow))


def take_an_insert_for_an_update(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(unset_fields, "INSERT", -1)


def leave_the_rows_of_changes_before_an_event(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(truncates, "_deleted", lambda changes, mask: changes)


def test_a_history_of_truncated_sources_notices_a_broken_rule(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    leave_the_rows_of_changes_before_an_event(monkeypatch)
    with pytest.raises(AssertionError, match="the rows"):
        played(tmp_path, 3, sources=True)


def test_a_history_of_updates_without_fields_notices_a_broken_rule(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    take_an_insert_for_an_update(monkeypatch)
    with pytest.raises(AssertionError, match="the rows"):
        played(tmp_path, 2, unset=True)


@pytest.mark.parametrize(
    ("broken", "seed"),
    [(compare_letter_by_letter, 22), (keep_rows_under_their_old_keys, 8), (take_null_for_a_default, 13)],
    ids=lambda value: value.__name__.replace("_", " ") if callable(value) else "",
)
def test_a_history_of_records_notices_a_broken_rule(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: Callable[[pytest.MonkeyPatch], None], seed: int
) -> None:
    broken(monkeypatch)
    with pytest.raises(AssertionError, match="the rows"):
        played(tmp_path, seed)
