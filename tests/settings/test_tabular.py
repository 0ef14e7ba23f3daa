"""Keys of Tabular's sink, which keeps its positions in a group of its own."""

from __future__ import annotations

from typing import Any

import pytest

from calving.errors import ConfigError
from calving.settings.load import Sink, parse

TABULAR = "io.tabular.iceberg.connect.IcebergSinkConnector"


def sink(**more: Any) -> Sink:
    keys = {"name": "orders", "topics": "t", "iceberg.tables": "db.t", "kafka.bootstrap.servers": "h:1"}
    return parse({"connector.class": TABULAR, **keys, **more})


def test_its_group_is_the_control_group_and_that_of_its_tasks_is_known() -> None:
    assert (sink().group, sink().connector_group) == ("cg-control-orders", "connect-orders")


def test_a_control_group_of_another_name_is_the_group() -> None:
    assert sink(**{"iceberg.control.group-id": "mine"}).group == "mine"


@pytest.mark.parametrize("key", ["iceberg.connect.group-id", "consumer.override.group.id"])
def test_the_group_of_its_tasks_may_have_another_name(key: str) -> None:
    found = sink(**{key: "theirs"})
    assert (found.group, found.connector_group) == ("cg-control-orders", "theirs")


def test_its_prefix_of_properties_for_writing_is_that_of_apaches() -> None:
    assert sink(**{"iceberg.table.write-props.a.b": "c"}).write_properties == {"a.b": "c"}


def test_the_control_group_is_refused_for_another_class() -> None:
    with pytest.raises(ConfigError, match="only Tabular's sink has it"):
        sink(**{"connector.class": "org.apache.iceberg.connect.IcebergSinkConnector", "iceberg.control.group-id": "x"})


def test_all_keys_that_cannot_be_taken_are_named_at_once() -> None:
    with pytest.raises(ConfigError) as found:
        sink(**{"iceberg.hadoop.fs.defaultFS": "x", "producer.override.acks": "all", "iceberg.tabels": "x"})
    assert [line.partition("'")[2].partition("'")[0] for line in str(found.value).splitlines()] == [
        "iceberg.hadoop.fs.defaultFS",
        "producer.override.acks",
        "iceberg.tabels",
    ]
