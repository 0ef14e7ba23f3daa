"""The key cache of the sink's commits knows the files that a compaction is about to add (K12)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pyiceberg.catalog import Catalog

from calving.iceberg.catalog import table_id
from calving.iceberg.resolvers import Resolvers
from calving.maintenance.compactor import Compactor
from calving.model.tables import RowMutations
from calving.mutations.columns import ColumnReader
from tests.iceberg.histories import KEY, create, pyiceberg_rows
from tests.maintenance.compacting import EAGER


@pytest.mark.parametrize("learns", [True, False])
def test_the_next_commit_reads_the_keys_of_the_new_file_only_if_they_were_not_learnt(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, learns: bool
) -> None:
    resolvers = Resolvers(lambda name: RowMutations(upsert=True), 10**7)
    table = create(catalog, "flat", 2)
    resolver = resolvers.of(table_id(table.name))
    assert resolver is not None
    table.resolver = resolver
    for number in range(4):
        table.commit(table.step([{"id": number * 10 + each, "name": "a", "g": 0} for each in range(5)]))
    read: list[str] = []
    batches = ColumnReader.batches

    def noted(self: ColumnReader, path: str, *more: Any) -> Iterator[Any]:
        read.append(path)
        return batches(self, path, *more)

    monkeypatch.setattr(ColumnReader, "batches", noted)
    more: dict[str, Any] = {"made": resolvers.learn} if learns else {}
    compactor = Compactor(catalog, table_id(table.name), KEY, {}, EAGER, **more)
    (group,) = compactor.plan(table.table, 0).groups
    made = compactor.compact(group).replacement
    assert made is not None
    (output,) = made.outputs
    assert read.count(output.file_path) == learns
    table.commit(table.step([{"id": 3, "name": "b", "g": 0}]))
    assert read.count(output.file_path) == 1, "it is read once: before its commit, or after it"
    assert pyiceberg_rows(table.table) == table.rows()
