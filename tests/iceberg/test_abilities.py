"""What a catalog gives is asked of the catalog, and asking changes nothing."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import BadRequestError
from pyiceberg.table import Table
from pyiceberg.table.update import SetSnapshotRefUpdate

from calving.errors import ConfigError, UnavailableError
from calving.iceberg.abilities import abilities
from calving.iceberg.catalog import open_catalog


@pytest.fixture
def catalog(catalog_keys: dict[str, str]) -> Catalog:
    return open_catalog("iceberg", catalog_keys)


@pytest.fixture
def rest(rest_uri: str) -> Catalog:
    return open_catalog("iceberg", {"type": "rest", "uri": rest_uri})


def table_in(catalog: Catalog, name: str) -> Table:
    rows = pa.table({"id": [1]})
    catalog.create_namespace_if_not_exists("abilities")
    table = catalog.create_table(f"abilities.{name}", rows.schema)
    table.append(rows)
    return table


def refusing(catalog: Catalog, error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    """A catalog as those are that know no branches."""
    original = catalog.commit_table

    def commit(table: Table, requirements: Any, updates: Any) -> Any:
        if any(isinstance(update, SetSnapshotRefUpdate) and update.ref_name != "main" for update in updates):
            raise error
        return original(table, requirements, updates)

    monkeypatch.setattr(catalog, "commit_table", commit)


def test_a_catalog_that_makes_branches_says_so_and_has_none_more(catalog: Catalog, unique: str) -> None:
    table = table_in(catalog, unique)
    assert "branches: the catalog makes and removes them" in list(abilities(catalog, table, "audit"))
    assert set(catalog.load_table(table.name()).metadata.refs) == {"main"}


def test_a_catalog_that_refuses_branches_is_refused_where_one_is_to_be_written(
    catalog: Catalog, unique: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = table_in(catalog, unique)
    refusing(catalog, BadRequestError("only main"), monkeypatch)
    with pytest.raises(ConfigError, match=r"refuses branches: only main; commit to main, not to 'audit'"):
        list(abilities(catalog, table, "audit"))
    assert not [line for line in abilities(catalog, table) if line.startswith("branches")]


def test_a_catalog_that_is_away_is_not_taken_for_one_without_branches(
    catalog: Catalog, unique: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = table_in(catalog, unique)
    refusing(catalog, OSError("connection reset"), monkeypatch)
    with pytest.raises(UnavailableError, match="does not say whether it has branches: OSError"):
        list(abilities(catalog, table, "audit"))


def test_a_rest_catalog_is_asked_for_format_version_3_without_making_a_table(rest: Catalog, unique: str) -> None:
    table_in(rest, unique)
    before = rest.list_tables("abilities")
    assert "format versions: 1 to 3" in list(abilities(rest, None))
    assert rest.list_tables("abilities") == before


def test_a_rest_catalog_that_refuses_format_version_3_says_why(
    rest: Catalog, unique: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table_in(rest, unique)

    def refuse(*arguments: object, **named: object) -> None:
        raise BadRequestError("unsupported format version: v3")

    monkeypatch.setattr(rest, "create_table_transaction", refuse)
    assert "format versions: 1 to 2; 3 is refused: BadRequestError: unsupported format version: v3" in list(
        abilities(rest, None)
    )


def test_a_rest_catalog_that_accepts_every_commit_is_refused(
    rest: Catalog, unique: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = table_in(rest, unique)
    monkeypatch.setattr(rest, "commit_table", lambda *arguments: None)
    with pytest.raises(ConfigError, match="accepts a commit whose requirements do not hold"):
        list(abilities(rest, table))
