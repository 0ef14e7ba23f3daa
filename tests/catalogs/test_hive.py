"""What a Hive metastore needs beyond pyiceberg: connections of threads, locks that end too early, metastores that are away."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hive_metastore.ttypes import ShowLocksRequest, UnlockRequest
from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from calving.iceberg.catalog import open_catalog
from calving.services.process import LOOPBACK, free_port

pytestmark = pytest.mark.services

SCHEMA = Schema(NestedField(1, "id", LongType(), required=False))


@pytest.fixture
def catalog(hive_keys: dict[str, str]) -> Catalog:
    made = open_catalog("iceberg", hive_keys)
    made.create_namespace_if_not_exists("db")
    return made


def test_threads_do_not_read_each_others_answers(catalog: Catalog, unique: str) -> None:
    names = [f"db.{unique}_{number}" for number in range(4)]
    for name in names:
        catalog.create_table(name, SCHEMA)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda name: ".".join(catalog.load_table(name).name()), names * 25))
    assert found == names * 25


def test_a_commit_whose_lock_has_expired_overwrites_no_other(
    hive_keys: dict[str, str], catalog: Catalog, unique: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = catalog.create_table(f"db.{unique}", SCHEMA)
    write: Any = catalog._write_metadata  # type: ignore[attr-defined]

    def write_slowly(*arguments: Any, **named: Any) -> None:
        write(*arguments, **named)
        monkeypatch.undo()
        end_all_locks(catalog)
        other = open_catalog("iceberg", hive_keys).load_table(table.name())
        other.transaction().set_properties(by="the other").commit_transaction()

    monkeypatch.setattr(catalog, "_write_metadata", write_slowly)
    with pytest.raises(Exception, match="The table has been modified"):
        table.transaction().set_properties(by="the slow one").commit_transaction()
    assert catalog.load_table(table.name()).properties["by"] == "the other"


def end_all_locks(catalog: Any) -> None:
    with catalog._client as client:
        for lock in client.show_locks(ShowLocksRequest()).locks:
            client.unlock(UnlockRequest(lockid=lock.lockid))


def test_another_metastore_is_asked_where_one_is_away(hive_keys: dict[str, str], catalog: Catalog) -> None:
    both = hive_keys | {"uri": f"thrift://{LOOPBACK}:{free_port()},{hive_keys['uri']}"}
    assert ("db",) in open_catalog("iceberg", both).list_namespaces()
