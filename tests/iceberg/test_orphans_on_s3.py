"""Orphan files on an object store, where no file system tells folders from files."""

from __future__ import annotations

import time
from pathlib import Path

import boto3
import pytest

from calving.backend.memory import MemorySession
from calving.iceberg.catalog import open_catalog
from calving.iceberg.locations import FileRules
from calving.maintenance.orphan_search import OrphanSearch, delete
from harness.servers import SeaweedFs, clients
from tests.iceberg.histories import create
from tests.maintenance.compacting import append
from tests.maintenance.searching import DAY_MS, OWNER, log_store, publish

pytestmark = pytest.mark.services


def test_only_what_nothing_names_is_deleted_at_any_depth(seaweedfs: SeaweedFs, tmp_path: Path) -> None:
    client = boto3.client("s3", **clients(seaweedfs.s3["s3.endpoint"]))
    client.create_bucket(Bucket="orphans")
    where = {"type": "sql", "uri": f"sqlite:///{tmp_path / 'catalog.db'}", "warehouse": "s3://orphans/warehouse"}
    catalog = open_catalog("iceberg", {**where, **seaweedfs.s3})
    table = create(catalog, "flat", 2)
    with table.table.transaction() as change:
        change.set_properties({"write.object-storage.enabled": "true"})
    for number in range(3):
        append(table, number)
    prefix = table.table.location().removeprefix("s3://orphans/")
    orphans = {f"{prefix}/data/{name}" for name in ("f.parquet", "1/g.parquet", "1/2/h.parquet", "1/2/3/4/i.parquet")}
    for key in (*orphans, f"{prefix}/data/1/2/waits.parquet"):
        client.put_object(Bucket="orphans", Key=key, Body=b"left")
    store = log_store()
    publish(store, table.table, f"s3a://orphans/{prefix}/data/1/2/waits.parquet")
    search = OrphanSearch(catalog, tuple(table.table.name()), FileRules(), {OWNER: MemorySession(store, "o")})
    search.check_clock(table.table)
    before = keys(client)
    (part,) = search.orphans(3 * DAY_MS, int(time.time() * 1000) + 4 * DAY_MS)
    assert {file.path.removeprefix("s3://orphans/") for file in part} == orphans
    assert delete(table.table.io, part).count == 4
    assert before - keys(client) == orphans and len(table.table.scan().to_arrow()) == 30


def keys(client: object) -> set[str]:
    listed = client.list_objects_v2(Bucket="orphans")["Contents"]  # type: ignore[attr-defined]
    return {each["Key"] for each in listed if not each["Key"].endswith("/")}
