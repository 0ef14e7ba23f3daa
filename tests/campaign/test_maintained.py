"""What a campaign finds on the disk once nobody writes any more."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any, cast

import pytest
from pyiceberg.catalog import Catalog

from calving.iceberg.catalog import open_catalog
from calving.settings.load import parse
from campaign import maintained
from campaign.changes import Workload
from campaign.maintained import end, settings
from campaign.sink import Sink
from tests.iceberg.histories import MutationTable
from tests.maintenance.compacting import appended, compact, data_files

_OF_EACH = {"name": "x", "topics": "t", "kafka.bootstrap.servers": "localhost:1"}


class Idle:
    """A sink without workers, whose operator does nothing."""

    def __init__(self, folder: Path) -> None:
        self.config = folder / "sink.json"
        self.config.write_text(json.dumps(_OF_EACH))
        self.asked: list[tuple[str, ...]] = []

    def maintain(self, *options: str, alone: bool) -> str:
        assert alone
        self.asked.append(options)
        return ""


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    return open_catalog("iceberg", {"type": "embedded", "warehouse": str(tmp_path / "warehouse")})


@pytest.fixture
def table(catalog: Catalog) -> MutationTable:
    """With snapshots that replaced files, and a tag."""
    found = appended(catalog, 2, 3)
    head = found.table.current_snapshot()
    assert head is not None
    found.table.manage_snapshots().create_tag(head.snapshot_id, "kept").commit()
    compact(found)
    return found


def _folder(table: MutationTable) -> Path:
    return Path(table.table.location().removeprefix("file://"))


def seen(tmp_path: Path, quiet: float = float("inf"), log: bytes = b"") -> dict[str, Any]:
    return end(cast(Sink, Idle(tmp_path)), tmp_path / "warehouse" / "catalog.db", quiet, log)


def test_files_that_snapshots_and_tags_name_are_neither_missing_nor_orphans(
    table: MutationTable, tmp_path: Path
) -> None:
    found = seen(tmp_path)
    assert (found["missing"], found["orphans"], found["tags"]) == (0, 0, 1), found


def test_a_file_that_only_a_tag_names_is_missed(table: MutationTable, tmp_path: Path) -> None:
    every = {file["file_path"] for file in table.table.inspect.all_files().to_pylist()}
    tagged = every - set(data_files(table.table))
    Path(min(tagged).removeprefix("file://")).unlink()
    assert seen(tmp_path)["missing"] == 1


@pytest.mark.parametrize("place", ["data/of-nobody.parquet", "metadata/of-nobody-m0.avro"])
def test_a_file_that_nothing_names_is_an_orphan(table: MutationTable, tmp_path: Path, place: str) -> None:
    (_folder(table) / place).write_bytes(b"")
    found = seen(tmp_path)
    assert found["orphans"] == 1 and found["examples_of_files"] == [place.partition("/")[2]]


def test_a_file_that_the_control_log_names_is_no_orphan(table: MutationTable, tmp_path: Path) -> None:
    (_folder(table) / "data/of-the-log.parquet").write_bytes(b"")
    assert seen(tmp_path, log=b"... file:///data/of-the-log.parquet ...")["orphans"] == 0


def test_files_of_the_last_cycle_are_no_orphans(table: MutationTable, tmp_path: Path) -> None:
    before = time.time()
    file = _folder(table) / "data/of-the-last-cycle.parquet"
    file.write_bytes(b"")
    os.utime(file, (before, before))
    assert seen(tmp_path, before)["orphans"] == 0


def test_files_that_the_head_has_removed_may_be_there_and_need_not(catalog: Catalog, tmp_path: Path) -> None:
    table = appended(catalog, 2, 3)
    removed = data_files(table.table)
    compact(table)
    *earlier, _ = (snapshot.snapshot_id for snapshot in table.table.metadata.snapshots)
    expire = table.table.maintenance.expire_snapshots()
    for snapshot_id in earlier:
        expire = expire.by_id(snapshot_id)
    expire.commit()
    assert not any(each in seen(tmp_path)["examples_of_files"] for each in removed)
    Path(removed[0].removeprefix("file://")).unlink()
    assert seen(tmp_path)["missing"] == 0


def test_an_operator_expires_and_looks_for_orphans_among_old_files(table: MutationTable, tmp_path: Path) -> None:
    idle = Idle(tmp_path)
    end(cast(Sink, idle), tmp_path / "warehouse" / "catalog.db", 0.0, b"")
    assert [task for _, task, *_ in idle.asked] == ["expire", "expire", "orphans"]
    ages = {path.stat().st_mtime for path in _folder(table).rglob("*.parquet")}
    assert len(ages) == 1


@pytest.mark.parametrize("workload", ["append", "upsert", "cdc", "mixed", "partial", "history"])
def test_most_tables_with_partitions_land_their_rows(workload: Workload) -> None:
    names = [f"db.t{i}" for i in range(6)]
    keys = {**_OF_EACH, "iceberg.tables": ",".join(names), **settings(workload, names)}
    sink = parse({key: value for key, value in keys.items() if value is not None})
    assert [sink.landing(name) for name in names[1::2]] == ["unpartitioned", "unpartitioned", "partitioned"]
    assert sink.maintains_any and maintained.done(cast(Sink, _Silent())) == {}


class _Silent:
    """It has had no worker."""

    workers = ()
