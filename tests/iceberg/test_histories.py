"""One seed of every combination of ``acceptance.py``, which has many."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyroaring import BitMap64

from calving.iceberg import resolution
from calving.iceberg.catalog import open_catalog
from calving.iceberg.delete_files import Deletions
from calving.mutations import candidates
from calving.mutations.candidates import Candidate, Pruning
from calving.protocol import commit
from calving.protocol.order import Ordered
from tests.iceberg.acceptance import COMBINATIONS, has_version_3, played

SHORT = {*COMBINATIONS[::4], *COMBINATIONS[3::4]}
"""Each mode with each layout, and with one number of partitions of the control log."""


def marks(combination: tuple[str, str, int]) -> list[pytest.MarkDecorator]:
    services = [pytest.mark.services] if has_version_3(combination[0]) else []
    return services if combination in SHORT else [*services, pytest.mark.long]


@pytest.mark.parametrize(
    ("mode", "layout", "control"), [pytest.param(*each, marks=marks(each)) for each in COMBINATIONS]
)
def test_a_history_leaves_what_a_replay_in_the_order_of_offsets_leaves(
    tmp_path: Path, request: pytest.FixtureRequest, mode: str, layout: str, control: int
) -> None:
    keys = {"type": "embedded", "warehouse": str(tmp_path)}
    if has_version_3(mode):
        keys = {"type": "rest", "uri": request.getfixturevalue("rest_uri")}
    history = played(open_catalog("iceberg", keys), mode, layout, control, 1000)
    assert history.counts["commits"] > 1


def drop_earlier_deletes(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Deletions, "before", lambda deletions, path: BitMap64())


def take_as_heard(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        commit,
        "ordered",
        lambda entries, control, progress, ledger: Ordered(tuple(entries), (), control, progress.covered),
    )


def search_one_partition(patch: pytest.MonkeyPatch) -> None:
    """The one of a new row, though the old one may be elsewhere."""
    added: set[tuple[Any, ...]] = set()
    found_of, keys_of = candidates.new_files, Pruning.keys_of

    def new_files(*given: Any) -> dict[str, Candidate]:
        found = found_of(*given)
        added.clear()
        added.update(file.partition for file in [*found.values()][-1:])
        return found

    patch.setattr(resolution, "new_files", new_files)
    patch.setattr(Pruning, "keys_of", lambda pruning, file: keys_of(pruning, file) if file.partition in added else None)


def delete_in_the_table_only(patch: pytest.MonkeyPatch) -> None:
    """Rows that come with the same commit stay."""
    keys_of = Pruning.keys_of
    patch.setattr(Pruning, "keys_of", lambda pruning, file: keys_of(pruning, file) if file.step is None else None)


def keep_positions_of_files_that_are_gone(patch: pytest.MonkeyPatch) -> None:
    """A data file without rows leaves, and its delete file stays."""
    removed = Deletions.removed

    def only_data(deletions: Deletions, deleted: Any, gone: Any) -> Any:
        (files, _), (kept, manifests) = removed(deletions, (), gone), removed(deletions, deleted, gone)
        paths = {file.path for file in gone}
        return kept - {key for key in files if key[0] not in paths}, manifests

    patch.setattr(Deletions, "removed", only_data)


@pytest.mark.parametrize("mode", ["version 2", pytest.param("version 3", marks=pytest.mark.services)])
@pytest.mark.parametrize(
    ("broken", "layout", "control", "noticed"),
    [
        (drop_earlier_deletes, "flat", 1, "rows"),
        (take_as_heard, "flat", 4, "its position has gone back"),
        (search_one_partition, "moving", 1, "rows"),
        (delete_in_the_table_only, "flat", 1, "rows"),
        (keep_positions_of_files_that_are_gone, "flat", 1, "a delete file is about no live data file"),
    ],
    ids=lambda value: value.__name__.replace("_", " ") if callable(value) else "",
)
def test_a_history_notices_a_broken_rule(
    tmp_path: Path,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    broken: Callable[[pytest.MonkeyPatch], None],
    layout: str,
    control: int,
    noticed: str,
    mode: str,
) -> None:
    keys = {"type": "embedded", "warehouse": str(tmp_path)}
    if has_version_3(mode):
        keys = {"type": "rest", "uri": request.getfixturevalue("rest_uri")}
    broken(monkeypatch)
    with pytest.raises(AssertionError, match=noticed):
        played(open_catalog("iceberg", keys), mode, layout, control, 1000)
