"""Tables of version 3 with types of other engines, in Apache's REST catalog server: it keeps what calving does not know."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest
import requests
from pyiceberg.catalog import Catalog

from calving.iceberg.catalog import open_catalog
from calving.iceberg.rules import TableRules
from calving.iceberg.tables import Tables
from calving.model.tables import SchemaChange
from tests.iceberg.histories import MutationTable
from tests.iceberg.reader import rows_of

FOREIGN: list[dict[str, Any]] = [
    {"id": 2, "name": "v", "required": False, "type": "variant"},
    {"id": 3, "name": "geo", "required": False, "type": "geometry(EPSG:4326)"},
    {"id": 4, "name": "nothing", "required": False, "type": "unknown"},
    {
        "id": 5,
        "name": "s",
        "required": False,
        "type": {
            "type": "struct",
            "fields": [
                {"id": 6, "name": "v", "required": False, "type": "variant"},
                {"id": 7, "name": "n", "required": False, "type": "long"},
            ],
        },
    },
]


@pytest.fixture
def catalog(rest_uri: str) -> Catalog:
    return open_catalog("iceberg", {"type": "rest", "uri": rest_uri})


@pytest.fixture
def table(catalog: Catalog, rest_uri: str) -> MutationTable:
    """A table that another engine has created."""
    catalog.create_namespace_if_not_exists("foreign")
    name = f"t{uuid4().hex}"
    id_column = {"id": 1, "name": "id", "required": True, "type": "long"}
    body = {
        "name": name,
        "schema": {"type": "struct", "schema-id": 0, "fields": [id_column, *FOREIGN], "identifier-field-ids": [1]},
        "properties": {"format-version": "3"},
    }
    made = requests.post(f"{rest_uri}/v1/namespaces/foreign/tables", json=body, timeout=30)
    assert made.ok, made.text
    return MutationTable(catalog, f"foreign.{name}")


def metadata(rest_uri: str, table: MutationTable) -> dict[str, Any]:
    namespace, name = table.name.split(".")
    found = requests.get(f"{rest_uri}/v1/namespaces/{namespace}/tables/{name}", timeout=30)
    return dict(found.json()["metadata"])


def test_rows_change_and_columns_are_added_and_the_types_stay(table: MutationTable, rest_uri: str) -> None:
    before = metadata(rest_uri, table)["schemas"][0]["fields"]
    table.commit(table.step([{"id": 1, "s": {"n": 1}}, {"id": 2}]))
    table.commit(table.step([{"id": 1, "s": {"n": 2}}], [{"id": 2}]))
    assert rows_of(table.table) == [(1, None, None, None, {"v": None, "n": 2})]
    Tables(table.catalog, "iceberg", TableRules()).apply([SchemaChange(table.name, "add", ("more",), "long")])
    table.commit(table.step([{"id": 3, "more": 4}]))
    found = metadata(rest_uri, table)
    schema = next(each for each in found["schemas"] if each["schema-id"] == found["current-schema-id"])
    assert schema["fields"] == [*before, {"id": 8, "name": "more", "required": False, "type": "long"}]
    assert [field["type"] for field in before[1:4]] == [field["type"] for field in FOREIGN[:3]]
    assert rows_of(table.table) == [(1, None, None, None, {"v": None, "n": 2}, None), (3, None, None, None, None, 4)]
