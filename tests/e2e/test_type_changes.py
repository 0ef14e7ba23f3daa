"""A field changes its type at the source: neither its table nor the others stop."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from calving.errors import BadRecordError
from calving.iceberg.catalog import open_catalog
from harness.topic import Topic
from tests.cli.commands import Cli
from tests.tasks.conftest import encode

pytestmark = pytest.mark.services


def rows(sink: Cli, table: str) -> list[str]:
    found = open_catalog("iceberg", sink.catalog_keys).load_table(table).scan().to_arrow().to_pylist()
    return sorted(json.dumps({name: value for name, value in row.items() if value is not None}) for row in found)


def test_the_tables_of_a_sink_go_on_after_a_type_has_changed(
    topic: Callable[..., Topic], tmp_path: Path, unique: str
) -> None:
    sink = Cli(tmp_path, topic(), unique)
    sink.keys |= {
        "iceberg.tables": "db.t, db.u",
        "iceberg.tables.evolve-schema-enabled": True,
        "iceberg.tables.route-field": "to",
        "iceberg.table.db.t.route-regex": "t",
        "iceberg.table.db.u.route-regex": "u",
    }
    sink.topic.send(*encode({"to": "t", "amount": 1}, {"to": "u", "amount": 1}))
    sink.run_here()
    sink.topic.send(*encode({"to": "t", "amount": "1 EUR"}, {"to": "u", "amount": 2}, {"to": "t", "amount": 2}))
    with pytest.raises(BadRecordError, match="field 'amount': '1 EUR' is not a long"):
        sink.run_here()
    sink.keys["iceberg.table.db.t.on-type-change"] = "column"
    sink.run_here()
    assert rows(sink, "db.t") == [
        '{"to": "t", "amount": 1}',
        '{"to": "t", "amount": 2}',
        '{"to": "t", "amount_string": "1 EUR"}',
    ]
    assert rows(sink, "db.u") == ['{"to": "u", "amount": 1}', '{"to": "u", "amount": 2}']
