"""A sink that signs its entries, on every store: what others write into its control log changes nothing."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
import redis

from calving.backend.entries import Encoded
from calving.iceberg.catalog import open_catalog
from calving.model.events import DataComplete, DataWritten, Publication, TableReference
from calving.model.files import DataFile
from calving.model.offsets import Span, TopicPartition
from calving.testing.odd_entries import OddEntry
from harness.control_logs import ControlLog, KafkaLog, RedisLog, ZooKeeperLog
from harness.run import Run
from harness.waiting import wait_for
from tests.serving.sinks import Client

pytestmark = pytest.mark.services

SECRET = "a secret of the workers"
COUNTER = "calving_undecodable_entries_total"


@pytest.fixture
def run(keys: dict[str, str], servers: str, tmp_path: Path, unique: str) -> Iterator[Run]:
    settings = {**keys, "iceberg.control.secret": SECRET, "iceberg.http.port": "0"}
    made = Run(tmp_path, servers, unique, settings=settings, partitions=1)
    yield made
    made.close()


def log_of(run: Run) -> ControlLog:
    keys, control, group = json.loads(run.config.read_text()), f"control-{run.name}", f"connect-{run.name}"
    match keys.get("iceberg.control.backend"):
        case "redis":
            client = redis.Redis.from_url(keys["iceberg.control.redis.url"], protocol=2)
            return RedisLog(client, f"calving:{{{control}:{group}}}:")
        case "zookeeper":
            return ZooKeeperLog(keys["iceberg.control.zookeeper.hosts"], f"/calving/{control}/{group}")
    return KafkaLog(run.servers, control)


def forged(run: Run, path: str, rows: int) -> list[OddEntry]:
    """A publication without a signature, in which all else is right."""
    table = open_catalog("iceberg", run.catalog_keys).load_table(run.tables[0])
    *namespace, name = run.tables[0].split(".")
    reference = TableReference("iceberg", tuple(namespace), name, table.metadata.table_uuid)
    file = DataFile(path, "PARQUET", rows, Path(path.removeprefix("file://")).stat().st_size)
    events, covered = (
        (DataWritten(uuid4(), reference, (file,)), DataComplete(uuid4())),
        {TopicPartition(run.topic, 0): (Span(10**6, 10**6 + rows),)},
    )
    made = Encoded.of_worker(f"connect-{run.name}", Publication(events, {}, covered), 900_000)
    return [OddEntry(value, made.coverage, made.beside) for value in made.events]


def copied(run: Run) -> tuple[str, str, int]:
    """Copies of a data file within the location of its table and outside, and the number of their rows."""
    table = open_catalog("iceberg", run.catalog_keys).load_table(run.tables[0])
    file = next(iter(table.scan().plan_files())).file
    source = Path(file.file_path.removeprefix("file://"))
    inside, outside = source.with_name("00000-forged.parquet"), run.folder / "forged.parquet"
    for target in (inside, outside):
        shutil.copyfile(source, target)
    return f"file://{inside}", f"file://{outside}", file.record_count


def end(run: Run) -> None:
    """The sink commits more records, and stops; its tables have each record once."""
    run.produce(100)
    run.wait_until_committed()
    run.stop()
    run.assert_exactly_once()


def test_forged_and_repeated_entries_change_no_table_and_are_told(run: Run) -> None:
    worker, log = run.start(), log_of(run)
    run.produce(300)
    run.wait_until_committed()
    inside, outside, rows = copied(run)
    for entry in (*log.entries(), *forged(run, inside, rows), *forged(run, outside, rows)):
        log.append(entry)
    run.produce(300)
    run.wait_until_committed()
    run.assert_exactly_once()
    (url,) = re.findall(r"status page: (\S+)", worker.log.read_text())
    client = Client(url)
    wait_for(lambda: client.get("/api/status").json["health"] == "DEGRADED")
    said = "is not signed with iceberg.control.secret, and is ignored"
    assert [r["cause"] for r in client.get("/api/status").json["reasons"] if said in r["text"]] == ["unsigned-entry"]
    (counted,) = re.findall(rf"^{COUNTER}{{.*}} (\S+)", client.get("/metrics").text, re.MULTILINE)
    assert float(counted) >= 4
    command = [sys.executable, "-c", "from calving.cli.main import main; main()", "status", str(run.config), "--json"]
    told = subprocess.run(command, capture_output=True, text=True, check=False)
    assert told.returncode == 3, told.stdout + told.stderr
    assert any(said in reason for reason in json.loads(told.stdout)["reasons"])
    worker.stop(20)
    run.start()
    end(run)
    assert len(re.findall("DEGRADED: unsigned-entry", worker.log.read_text())) == 1
    assert all(Path(path.removeprefix("file://")).exists() for path in (inside, outside))


def test_the_secret_is_changed_while_workers_run(run: Run) -> None:
    """As the manual says: three times, one worker after the other gets new settings."""
    run.start()
    run.start()
    for step in (
        {"iceberg.control.old-secret": "a new secret of the workers"},
        {"iceberg.control.secret": "a new secret of the workers", "iceberg.control.old-secret": SECRET},
        {"iceberg.control.secret": "a new secret of the workers", "iceberg.control.old-secret": None},
    ):
        run.wait_until_committed()
        keys = json.loads(run.config.read_text()) | step
        run.config.write_text(json.dumps({key: value for key, value in keys.items() if value is not None}))
        for worker in run.workers[-2:]:
            run.produce(60)
            worker.stop(20)
            run.start()
    end(run)
    assert "is not signed" not in "".join(worker.log.read_text() for worker in run.workers)
