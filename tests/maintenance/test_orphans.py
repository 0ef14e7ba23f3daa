"""Which files are orphan files, and in which tables nobody may look for them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata, TableMetadataV2
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField

from calving.iceberg.locations import OWN_LOCATIONS, FileRules
from calving.maintenance.orphans import (
    NamedFiles,
    OrphanRule,
    StoredFile,
    folders,
    owners,
    table_within,
    unread_names,
)
from calving.model.backfills import ended_property

OLD = StoredFile("s3://b/t/data/f.parquet", 10, 5)
RULE = OrphanRule(10, frozenset({"_p"}))


def holds(file: StoredFile, *named: str, folder: str = "s3://b/t/data") -> bool:
    names = NamedFiles()
    names.add(named)
    return RULE.holds(file, folder, names)


def metadata(location: str = "s3://b/t", **properties: str) -> TableMetadata:
    schema = Schema(NestedField(1, "id", LongType(), required=False))
    spec = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "_p"))
    more: dict[str, Any] = {"last-updated-ms": 0, "last-column-id": 1, "properties": properties}
    return TableMetadataV2.model_validate(
        {"location": location, "schemas": [schema], "partition_specs": [spec], "refs": {}, **more}
    )


def test_an_old_file_that_nothing_names_is_an_orphan_file() -> None:
    assert holds(OLD) and holds(OLD, "s3://b/t/data/g.parquet")


@pytest.mark.parametrize("age", [10, 11, None], ids=["just as old", "younger", "unknown"])
def test_a_file_that_is_not_surely_older_stays(age: int | None) -> None:
    assert not holds(replace(OLD, modified_ms=age))


@pytest.mark.parametrize(
    "name",
    [
        "s3a://b/t/data/f.parquet",
        "s3n://b/t/data/f.parquet",
        "s3://alias-of-b/t/data/f.parquet",
        "hdfs://other:8020/t/data/f.parquet",
        "/mnt/link/t//data/f.parquet",
        "s3://b/t/data/%66.parquet",
    ],
)
def test_a_file_that_is_named_in_another_way_stays(name: str) -> None:
    assert not holds(OLD, name)


def test_a_file_that_a_storage_might_take_for_another_one_stays() -> None:
    assert not holds(replace(OLD, path="s3://b/t/data/f.parquet#1"))


def test_hidden_files_stay_and_those_of_a_hidden_partition_do_not() -> None:
    assert not holds(replace(OLD, path="s3://b/t/data/_log/f.parquet"))
    assert not holds(replace(OLD, path="s3://b/t/data/.f.parquet.crc"))
    assert not holds(replace(OLD, path="s3://b/t/data/_q=1/f.parquet"))
    assert holds(replace(OLD, path="s3://b/t/data/_p=1/f.parquet"))


def test_the_folders_are_those_of_data_and_metadata_wherever_they_are() -> None:
    assert folders(metadata(), OWN_LOCATIONS) == ("s3://b/t/data", "s3://b/t/metadata")
    moved = metadata(**{"write.data.path": "s3://c/d/", "write.metadata.path": "s3://b/m"})
    overridden = FileRules(write_properties={"write.data.path": "s3://e/own"})
    assert set(folders(moved, overridden)) == {
        "s3://b/t/data",
        "s3://b/t/metadata",
        "s3://c/d",
        "s3://b/m",
        "s3://e/own",
    }


def test_a_folder_within_another_is_searched_once() -> None:
    assert folders(metadata(**{"write.data.path": "s3a://b/t/"}), OWN_LOCATIONS) == ("s3a://b/t",)


@pytest.mark.parametrize(
    ("other", "is_within"),
    [
        (("s3://b/t", "s3://b/t/data"), True),
        (("s3a://b/t/data/u", "s3a://b/t/data/u/data"), True),
        (("s3://b/u", "s3://b/u/data", "s3://b/t/metadata"), True),
        (("s3://b/u", "s3://b"), True),
        (("s3://b", "s3://b/data"), False),
        (("s3://b/t2", "s3://b/t2/data", "s3://b/t/data2"), False),
        (("s3://c/t", "s3://c/t/data"), False),
    ],
)
def test_a_table_whose_folders_hold_files_of_another_one_is_found(other: tuple[str, ...], is_within: bool) -> None:
    own = folders(metadata(), OWN_LOCATIONS)
    assert table_within(own, {"db.u": other}) == ("db.u" if is_within else None)


@pytest.mark.parametrize(
    ("one", "same"),
    [
        ("hdfs://nn:8020/t", "hdfs://ha/t"),
        ("/t", "file:///t"),
        ("abfss://c@a.dfs.core.windows.net/t", "wasb://c@a.blob.core.windows.net/t"),
    ],
)
def test_one_place_has_several_names(one: str, same: str) -> None:
    assert table_within([f"{one}/data"], {"db.u": (same, f"{same}/data")}) == "db.u"


def test_the_writers_of_a_table_are_known_by_its_properties() -> None:
    said = {"kafka.connect.offsets.control.connect-x": "{}", "calving.source-offsets.c2.connect-y": "{}"}
    assert owners(metadata(**said)) == {"control.connect-x", "c2.connect-y"}


@pytest.mark.parametrize("branch", ["", "@dropped"])
def test_a_backfill_writes_a_table_until_it_has_ended(branch: str) -> None:
    owner = "control.connect-x.backfill.y"
    said = {f"kafka.connect.offsets.{owner}{branch}": "{}", f"calving.source-offsets.{owner}{branch}": "{}"}
    assert owners(metadata(**said)) == {owner}
    assert owners(metadata(**said, **{ended_property(owner): "1"})) == set()


def test_a_sink_whose_log_was_not_read_is_named() -> None:
    why = unread_names(metadata(**{"kafka.connect.offsets.c.connect-y": "{}"}), {"control.connect-x": "1"})
    assert why is not None and "also written by sink c.connect-y" in why and "--other-sink" in why


def test_a_log_that_was_created_again_does_not_tell_which_files_are_needed() -> None:
    of = metadata(**{"calving.control-log-id.c.connect-x": "1"})
    assert unread_names(of, {"c.connect-x": "1"}) is None
    assert "created again" in (unread_names(of, {"c.connect-x": "2"}) or "")
