"""A sink whose leader maintains the tables while it commits to them."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from calving.iceberg.catalog import find_table
from calving.maintenance.lease import LEASE
from harness.run import Run, died
from harness.waiting import wait_for

pytestmark = pytest.mark.services

NAME = "db.even"
ON = {
    "iceberg.maintenance.enabled": "true",
    "iceberg.maintenance.pause-ms": "1000",
    "iceberg.maintenance.small-files": "4",
    "iceberg.maintenance.manifests": "6",
    "iceberg.maintenance.grace-ms": "0",
    "iceberg.tables.auto-create-props.calving.expire.max-snapshots": "6",
}


@pytest.fixture
def run(servers: str, tmp_path: Path, unique: str) -> Iterator[Callable[..., Run]]:
    made: list[Run] = []

    def make(settings: Mapping[str, str | None] | None = None) -> Run:
        made.append(Run(tmp_path, servers, unique, settings={**ON, **(settings or {})}, tables=(NAME,)))
        return made[-1]

    yield make
    for one in made:
        one.close()


def size(run: Run) -> tuple[int, int]:
    """How many live data files and snapshots the table has."""
    table = find_table(run.catalog, (*NAME.split("."),))
    if table is None:
        return 0, 0
    return len(table.inspect.files()), len(table.metadata.snapshots)


def compacted(run: Run) -> int:
    """How many groups the workers have compacted, by their logs."""
    logs = (worker.log.read_text(errors="replace") for worker in run.workers)
    return sum(len(re.findall(r"maintenance \(compact\): .* became 1 file", log)) for log in logs)


def files_on_disk(run: Run) -> int:
    return len([*run.folder.glob("warehouse/**/*.parquet")])


def test_files_and_snapshots_stay_few_and_no_row_is_lost_or_doubled(run: Callable[..., Run]) -> None:
    r = run()
    r.start()
    deadline = time.monotonic() + 300
    while compacted(r) < 5 and time.monotonic() < deadline:
        r.produce(100, 100)
    r.wait_until_committed()
    wait_for(lambda: size(r)[0] < 4 and size(r)[1] <= 6)
    r.stop()
    r.assert_exactly_once()
    assert compacted(r) >= 5
    log = r.workers[0].log.read_text()
    assert "of expired snapshots deleted" in log
    assert files_on_disk(r) < log.count("1 file, "), "fewer than batches have written"
    assert " 1 failed" not in log and "still committing" not in log
    table = find_table(r.catalog, (*NAME.split("."),))
    assert table is not None and LEASE not in table.properties


@pytest.mark.parametrize("fault", ["rewrite:before:2", "rewrite:after:2"])
def test_another_worker_goes_on_where_the_leader_was_killed_during_a_compaction(
    run: Callable[..., Run], fault: str
) -> None:
    r = run()
    victim = r.start(fault)
    assert r.produce_until_it_dies(victim, 300), f"the fault {fault} never happened"
    done = compacted(r)
    assert died(victim)
    r.revive()
    deadline = time.monotonic() + 300
    while compacted(r) < done + 2 and time.monotonic() < deadline:
        r.produce(100, 100)
    r.wait_until_committed()
    r.stop()
    r.assert_exactly_once()
    assert compacted(r) >= done + 2


def ids(run: Run) -> list[int] | None:
    """The ids of the table's rows; None while pyiceberg cannot read it, because it has equality deletes."""
    try:
        return sorted(run.catalog.load_table(NAME).scan().to_arrow()["id"].to_pylist())
    except ValueError:
        return None


@pytest.mark.parametrize("deletes", ["positions", "equality"])
def test_of_rows_that_change_while_their_files_are_joined_each_is_there_once(
    run: Callable[..., Run], deletes: str
) -> None:
    upserts = {
        "iceberg.tables.upsert-mode-enabled": "true",
        "iceberg.tables.default-id-columns": "id",
        "iceberg.tables.row-deletes": deletes,
    }
    r = run(upserts)
    r.start()
    r.produce(300)
    changed, deadline = 0, time.monotonic() + 300
    while compacted(r) < 4 and time.monotonic() < deadline:
        for _ in range(40):
            changed = (changed + 7) % 300
            r.send(changed, changed * 7 % r.partitions)
        r.produce(20, 50)
    wait_for(lambda: ids(r) == [*range(r.sent)])
    r.stop()
    assert ids(r) == [*range(r.sent)]
    assert compacted(r) >= 4
    converted = [line for line in r.workers[0].log.read_text().splitlines() if "maintenance (deletes)" in line]
    assert bool(converted) == (deletes == "equality")
