"""Catalogs that refuse tables, or columns of tables."""

from __future__ import annotations

from typing import Any

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import ForbiddenError
from pyiceberg.table import Table
from pyiceberg.table.update import AddSchemaUpdate

NOT_ALLOWED = "Malformed request: name not allowed"


def refuse_columns(monkeypatch: pytest.MonkeyPatch, catalog: Catalog, error: type[Exception], *names: str) -> None:
    """Let the catalog refuse schemas of ``db.good`` with such a column; without names, each new one."""
    commit = catalog.commit_table

    def checked(table: Table, requirements: Any, updates: Any) -> Any:
        schemas = [update.schema_ for update in updates if isinstance(update, AddSchemaUpdate)]
        mine = schemas if table.name() == ("db", "good") else []
        if any(not names or name in schema.column_names for schema in mine for name in names or ("",)):
            raise error(NOT_ALLOWED)
        return commit(table, requirements, updates)

    monkeypatch.setattr(catalog, "commit_table", checked)


def deny(monkeypatch: pytest.MonkeyPatch, catalog: Catalog, method: str, *tables: str) -> None:
    """Let the catalog deny these tables; without names, all."""
    asked = getattr(catalog, method)

    def denied(name: tuple[str, ...], *others: Any, **options: Any) -> Any:
        if not tables or ".".join(name) in tables:
            raise ForbiddenError("not yours")
        return asked(name, *others, **options)

    monkeypatch.setattr(catalog, method, denied)
