"""``calving maintain --task compact`` as a user runs it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform

from calving.errors import CommandFailedError, ConfigError
from calving.iceberg.catalog import open_catalog
from calving.settings.load import Sink, load
from tests.cli import maintaining
from tests.iceberg.histories import MutationTable, create, pyiceberg_rows

TASKS = ("deletes", "compact")
SIZE = r"\d+(\.\d)? (B|KiB)"


def lines(
    sink: Sink, names: Collection[str] = (), tasks: Collection[str] = TASKS, *, dry_run: bool = False
) -> list[str]:
    return maintaining.lines(sink, names, tasks, dry_run=dry_run)


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    return open_catalog("iceberg", {"type": "embedded", "warehouse": str(tmp_path / "warehouse")})


def table_with(catalog: Catalog, files: int, layout: str = "flat") -> MutationTable:
    table = create(catalog, layout, 2)
    for number in range(files):
        table.commit(table.step([], inserts=[{"id": number, "name": "a", "g": 0}]))
    return table


def file_of(tmp_path: Path, table: str, **more: Any) -> Path:
    config = tmp_path / "sink.json"
    keys = {
        "name": "x",
        "topics": "t",
        "iceberg.tables": table,
        "kafka.bootstrap.servers": "localhost:1",
        "iceberg.catalog.type": "embedded",
        "iceberg.catalog.warehouse": str(tmp_path / "warehouse"),
        **more,
    }
    config.write_text(json.dumps(keys))
    return config


def sink_of(tmp_path: Path, table: str, **more: Any) -> Sink:
    return load(file_of(tmp_path, table, **more))


def files_of(table: Table) -> int:
    return len(table.inspect.data_files())


def test_a_dry_run_says_what_would_become_of_which_files_and_why(catalog: Catalog, tmp_path: Path) -> None:
    table = table_with(catalog, 12, "moving")
    before = table.table.metadata_location
    (line,) = lines(sink_of(tmp_path, table.name), dry_run=True)
    assert re.fullmatch(
        rf"table {table.name}: 12 files of g=0 \({SIZE}\) would become about 1 file: 12 files below 64 MiB", line
    )
    assert table.table.metadata_location == before


def test_a_sorted_table_stays_sorted_and_the_line_says_so(catalog: Catalog, tmp_path: Path) -> None:
    table = table_with(catalog, 12)
    with table.table.update_sort_order() as order:
        order.desc("id", IdentityTransform())
    (planned,) = lines(sink_of(tmp_path, table.name), dry_run=True)
    (done,) = lines(sink_of(tmp_path, table.name))
    assert planned.endswith("would become about 1 file, sorted: 12 files below 64 MiB")
    assert re.search(rf"became 1 file \({SIZE}\), sorted: 12 files below 64 MiB$", done)
    (file,) = table.table.inspect.data_files().to_pylist()
    assert file["sort_order_id"] == 1
    ids = pq.read_table(file["file_path"].removeprefix("file://"))["id"].to_pylist()
    assert ids == list(range(11, -1, -1))


def test_the_settings_ask_for_a_z_order(catalog: Catalog, tmp_path: Path) -> None:
    table = table_with(catalog, 12)
    (line,) = lines(sink_of(tmp_path, table.name, **{"iceberg.maintenance.strategy": "z-order(id, g)"}))
    assert line.endswith(", in z-order of id, g: 12 files below 64 MiB")
    assert pyiceberg_rows(table.table) == table.rows()


def test_a_strategy_that_does_not_fit_a_table_leaves_it_alone(catalog: Catalog, tmp_path: Path) -> None:
    table = table_with(catalog, 12)
    (line,) = lines(sink_of(tmp_path, table.name, **{"iceberg.maintenance.strategy": "z-order(id, nothing)"}))
    why = "strategy z-order needs 2 to 4 columns of a primitive type: there is no column nothing"
    assert line == f"table {table.name}: not compacted: {why}"
    assert files_of(table.table) == 12


@pytest.mark.parametrize(
    "key", [{"iceberg.maintenance.landed-files": 1}, {"iceberg.tables.landing": "unpartitioned"}], ids=str
)
def test_a_file_that_landed_without_a_partition_is_moved_into_its_own(
    catalog: Catalog, tmp_path: Path, key: dict[str, object]
) -> None:
    table = table_with(catalog, 1)
    with table.table.update_spec() as spec:
        spec.add_field("g", IdentityTransform(), "by_g")
    (line,) = lines(sink_of(tmp_path, table.name))
    assert line == f"table {table.name}: nothing to compact"
    (line,) = lines(sink_of(tmp_path, table.name, **key))
    assert line.endswith(": 1 file without a partition")
    (file,) = table.table.inspect.data_files().to_pylist()
    assert (file["spec_id"], file["partition"]["by_g"]) == (1, 0)


def test_files_that_are_due_are_joined_and_no_row_changes(catalog: Catalog, tmp_path: Path) -> None:
    table = table_with(catalog, 12)
    (line,) = lines(sink_of(tmp_path, table.name))
    assert re.fullmatch(
        rf"table {table.name}: 12 files \({SIZE}\) became 1 file \({SIZE}\): 12 files below 64 MiB", line
    )
    assert files_of(table.table) == 1 and pyiceberg_rows(table.table) == table.rows()
    assert lines(sink_of(tmp_path, table.name)) == [f"table {table.name}: nothing to compact"]


def test_a_table_has_triggers_of_its_own(catalog: Catalog, tmp_path: Path) -> None:
    table = table_with(catalog, 3)
    assert lines(sink_of(tmp_path, table.name)) == [f"table {table.name}: nothing to compact"]
    own = {"iceberg.maintenance.small-files": "9", f"iceberg.table.{table.name}.maintenance.small-files": "3"}
    assert "3 files below 64 MiB" in lines(sink_of(tmp_path, table.name, **own))[0]


def test_keys_of_triggers_are_checked(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"iceberg\.table\.db\.t\.maintenance\.deleted-share: .*1"):
        sink_of(tmp_path, "db.t", **{"iceberg.table.db.t.maintenance.deleted-share": "2"})
    with pytest.raises(ConfigError, match=r"unknown key 'iceberg\.table\.db\.t\.maintenance\.small-file'"):
        sink_of(tmp_path, "db.t", **{"iceberg.table.db.t.maintenance.small-file": "2"})


def test_the_target_size_is_that_of_the_properties_with_which_the_sink_writes(catalog: Catalog, tmp_path: Path) -> None:
    table = table_with(catalog, 12)
    small = {"iceberg.tables.write-props.write.target-file-size-bytes": "100"}
    assert lines(sink_of(tmp_path, table.name, **small)) == [f"table {table.name}: nothing to compact"]


def test_rows_that_were_deleted_by_key_become_positions_before_files_are_joined(
    catalog: Catalog, tmp_path: Path
) -> None:
    table = create(catalog, "flat", 2)
    table.equality = True
    for number in range(14):
        table.commit(table.step([{"id": key, "name": f"n{number}", "g": 0} for key in (number, 100)]))
    upserts = {
        "iceberg.tables.upsert-mode-enabled": "true",
        "iceberg.tables.row-deletes": "equality",
        f"iceberg.table.{table.name}.id-columns": "id",
    }
    sink = sink_of(tmp_path, table.name, **upserts)
    waiting = lines(sink, (), ["compact"])
    assert waiting == [
        f"table {table.name}: nothing to compact, 13 files with equality deletes wait for the task deletes"
    ]
    converted, joined = lines(sink)
    assert "equality-delete files" in converted and "14 files" in joined
    assert pyiceberg_rows(table.table) == table.rows()


def test_a_table_that_cannot_be_written_is_left_alone_with_a_sentence(catalog: Catalog, tmp_path: Path) -> None:
    table = table_with(catalog, 12)
    with table.table.transaction() as change:
        change.set_properties({"write.parquet.compression-codec": "odd"})
    (line,) = lines(sink_of(tmp_path, table.name))
    assert line.startswith(f"table {table.name}: not compacted: table {table.name}: property write.parquet.compression")
    assert files_of(table.table) == 12


def test_a_table_that_is_not_there_yet_has_nothing_to_compact(tmp_path: Path) -> None:
    assert lines(sink_of(tmp_path, "db.later"), (), ["compact"]) == ["table db.later: nothing to compact"]


def test_files_that_cannot_be_read_are_named_and_the_command_fails(catalog: Catalog, tmp_path: Path) -> None:
    table, other = table_with(catalog, 12), table_with(catalog, 12)
    broken = table.table.inspect.data_files().to_pylist()[0]["file_path"].removeprefix("file://")
    Path(broken).write_bytes(b"PAR1")
    said: list[str] = []
    sink = sink_of(tmp_path, f"{table.name},{other.name}")
    with pytest.raises(CommandFailedError, match="1 step failed, as said above; nothing is lost, run it again"):
        said += lines(sink)
    assert files_of(table.table) == 12 and files_of(other.table) == 1
    left = {path.name for path in Path(broken).parent.iterdir()}
    assert len(left) == 12


def test_json_has_a_line_for_each_step(catalog: Catalog, tmp_path: Path) -> None:
    table = table_with(catalog, 12)
    command = [sys.executable, "-m", "calving.cli.main", "maintain", str(file_of(tmp_path, table.name)), "--json"]
    command[1:3] = ["-c", "from calving.cli.main import main; main()"]
    command += ["--task", "compact"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    (step,) = map(json.loads, done.stdout.splitlines())
    assert (
        step.items()
        >= {
            "table": table.name,
            "task": "compact",
            "outcome": "done",
            "partition": "",
            "files": 12,
            "outputs": 1,
            "reason": "12 files below 64 MiB",
        }.items()
    )
    assert step["bytes"] > step["bytes_after"] > 0
