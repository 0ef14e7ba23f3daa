"""Compactions of mutation tables, and of tables that are appended to, beside other commits."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO
from pyiceberg.manifest import DataFileContent
from pyiceberg.table import Table

from calving.iceberg.catalog import table_id
from calving.iceberg.manifests import read_entries, read_manifest_list
from calving.maintenance.compactor import CompactedGroup, Compactor
from calving.maintenance.plan import Plan, Triggers
from calving.maintenance.rewrite import rewrite
from harness.structure import check
from tests.iceberg.histories import KEY, MutationTable, create

EAGER = Triggers(small_files=2, medium_files=2, deleted_share=0.01)
"""Whatever can be rewritten is due."""


_REWRITE = "calving.maintenance.compactor.rewrite"


def beside(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Do this once, between the next rewriting of a group and its commit."""

    def and_act(*given: Any) -> Any:
        rewritten = rewrite(*given)
        monkeypatch.setattr(_REWRITE, rewrite)
        act()
        return rewritten

    monkeypatch.setattr(_REWRITE, and_act)


def fail_at(last: int, patch: pytest.MonkeyPatch) -> Callable[[], bool]:
    """Let one step of the storage or of the catalog fail. The result tells whether it was reached."""
    steps = itertools.count()
    reached: list[str] = []

    def step(name: str) -> None:
        if next(steps) == last:
            reached.append(name)
            raise OSError(28, "No space left on device")

    def around(kind: Any, name: str) -> None:
        original = getattr(kind, name)

        def wrapped(*args: Any, **kwargs: Any) -> Any:
            step(name)
            answer = original(*args, **kwargs)
            step(name)
            return answer

        patch.setattr(kind, name, wrapped)

    around(PyArrowFile, "create")
    around(PyArrowFileIO, "delete")
    around(Table, "_do_commit")
    return lambda: bool(reached)


def compactor_of(table: MutationTable, triggers: Triggers = EAGER, **more: Any) -> Compactor:
    return Compactor(
        table.catalog, table_id(table.name), KEY, {"engine-name": "calving"}, triggers, sleep=lambda _: None, **more
    )


def planned(table: MutationTable, triggers: Triggers = EAGER) -> Plan:
    return compactor_of(table, triggers).plan(table.table, 0)


def compact(table: MutationTable, triggers: Triggers = EAGER, **more: Any) -> list[CompactedGroup]:
    """Everything that is due, each group in its own commit."""
    own = compactor_of(table, triggers, **more)
    done = [own.compact(group) for group in own.plan(table.table, 0).groups]
    if table.table.current_snapshot() is not None:
        check(table.table, table.equality)
    return done


def dropped(done: Iterable[CompactedGroup]) -> list[str]:
    return [each.dropped for each in done if each.dropped is not None]


def appended(catalog: Catalog, version: int, commits: int, rows: int = 10, **more: Any) -> MutationTable:
    """A table with a small file of each commit."""
    table = create(catalog, more.pop("layout", "flat"), version, **more)
    if version == 1:
        table.resolver = None  # type: ignore[assignment]
    for number in range(commits):
        append(table, number, rows)
    return table


def append(table: MutationTable, number: int, rows: int = 10) -> None:
    table.commit(
        table.step([], inserts=[{"id": 1000 * number + i, "name": f"n{number}", "g": i % 3} for i in range(rows)])
    )


def recreate(table: MutationTable) -> None:
    """Somebody drops the table and creates it again, and one file comes."""
    schema = table.table.schema()
    table.catalog.drop_table(table.name)
    table.catalog.create_table(table.name, schema)
    table.expected.clear()
    append(table, 9)


def data_files(table: Table) -> list[str]:
    return sorted(each.data_file.file_path for each in entries(table) if each.data_file.content == DataFileContent.DATA)


def entries(table: Table) -> list[Any]:
    head = table.current_snapshot()
    manifests = read_manifest_list(table.io, head.manifest_list) if head is not None else []
    return [entry for manifest in manifests for entry in read_entries(table.io, manifest)]
