"""A campaign whose sink maintains its tables and lands rows; and what is on the disk in the end."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import redis

from campaign.changes import Workload
from campaign.files import avro, content
from campaign.sink import Sink
from harness.control_logs import ControlLog, KafkaLog, RedisLog, ZooKeeperLog
from harness.locations import locations

_DELETED = 2
_DAY_SECONDS = 86_400
_EXAMPLES = 5
_MORE_CYCLES, _LONGEST_SECONDS = 4, 120.0
_ON_DISK = ("file://", "file:", "/")


def settings(workload: Workload, tables: Sequence[str]) -> dict[str, str | None]:
    """The leader maintains all tables, often. Those in odd places have partitions; rows of most of these land first.
    A catalog that is restored is ten seconds old, and a busy machine is slow: files stay a minute longer than their
    snapshots.
    """
    found: dict[str, str | None] = {
        "iceberg.maintenance.enabled": "true",
        "iceberg.maintenance.pause-ms": "500",
        "iceberg.maintenance.small-files": "3",
        "iceberg.maintenance.medium-files": "2",
        "iceberg.maintenance.manifests": "8",
        "iceberg.maintenance.grace-ms": "60000",
        "iceberg.maintenance.orphans-older-than-ms": str(_DAY_SECONDS * 1000),
        "iceberg.tables.auto-create-props.calving.expire.max-snapshots": "12",
    }
    for place, name in enumerate(tables):
        if place % 2 and workload in ("append", "mixed"):
            found[f"iceberg.table.{name}.partition-by"] = "bucket(id, 3)"
        if place % 2 and place % 3 != 2:
            found[f"iceberg.table.{name}.landing"] = "unpartitioned"
    return found


def done(run: Sink) -> dict[str, int]:
    """How often the leaders say that a task of theirs has done something."""
    found: dict[str, int] = {}
    for worker in run.workers:
        for line in worker.log.read_text(errors="replace").splitlines():
            _, is_told, rest = line.partition(" maintenance (")
            task = rest.partition(")")[0]
            if is_told and any(word in rest for word in (" became ", " expired", " deleted")):
                found[task] = found.get(task, 0) + 1
    return found


def go_on(run: Sink, database: Path) -> None:
    """Have the sink commit more, as the control log names the files of a cycle until later ones have ended."""
    before, end = _cycles(database), time.monotonic() + _LONGEST_SECONDS
    while len(_cycles(database) - before) < _MORE_CYCLES and time.monotonic() < end:
        run.produce(100, 200)


def _cycles(database: Path) -> set[str]:
    """The commit cycles that the snapshots of all tables name."""
    tables = (json.loads(content(location)) for location in _metadata(database))
    summaries = (snapshot["summary"] for table in tables for snapshot in table.get("snapshots", ()))
    return {summary["kafka.connect.commit-id"] for summary in summaries if "kafka.connect.commit-id" in summary}


def end(run: Sink, database: Path, quiet: float, log: bytes) -> dict[str, Any]:
    """Once no worker runs: all files get two days older, and an operator looks for orphan files. Then every file that a
    snapshot, a branch or a tag has must be there, and on a disk no other one that was there at the time ``quiet``,
    seconds since the epoch, but for those that the ``log`` names.
    """
    if missing := _missing(_needed(database), None):
        return _storage(missing, (), database)  # any command would fail at the first of them
    run.config.write_text(json.dumps(json.loads(run.config.read_text()) | {"iceberg.maintenance.grace-ms": "0"}))
    for _ in range(2):  # what the first one expires, the second one deletes
        run.maintain("--task", "expire", "--anyway", alone=True)
    tables = _metadata(database)
    folders = [Path(location.removeprefix("file://").removeprefix("file:")).parent.parent for location in tables]
    is_on_disk = all(location.startswith(_ON_DISK) for location in tables)
    young = {file.name for file in _files(folders) if file.stat().st_mtime >= quiet}
    if is_on_disk:
        old = time.time() - 2 * _DAY_SECONDS
        for file in _files(folders):
            os.utime(file, (old, old))
        print(run.maintain("--task", "orphans", "--anyway", alone=True), file=sys.stderr)
    named = _needed(database)
    there = {file.name for file in _files(folders)} if is_on_disk else None
    names = {Path(path).name for path in named}
    orphans = sorted(name for name in set(there or ()) - names - young if name.encode() not in log)
    return _storage(_missing(named, there), orphans, database)


def control_log(run: Sink) -> bytes:
    """What is left of the control log: each store keeps entries for a while after the sink has read them."""
    return b"".join(entry.value for log in _logs(run) for entry in log.entries())


def _logs(run: Sink) -> Iterator[ControlLog]:
    keys = json.loads(run.config.read_text())
    topic, group = keys["iceberg.control.topic"], f"connect-{keys['name']}"
    match keys.get("iceberg.control.backend"):
        case "redis":
            client = redis.Redis.from_url(keys["iceberg.control.redis.url"], protocol=2)
            yield RedisLog(client, f"calving:{{{topic}:{group}}}:")
        case "zookeeper":
            yield ZooKeeperLog(keys["iceberg.control.zookeeper.hosts"], f"/calving/{topic}/{group}")
        case _:
            for partition in range(int(keys.get("iceberg.control.topic.partitions", "1"))):
                yield KafkaLog(run.servers, topic, partition)


def _storage(missing: Sequence[str], orphans: Sequence[str], database: Path) -> dict[str, Any]:
    return {
        "missing": len(missing),
        "orphans": len(orphans),
        "examples_of_files": [*missing[:_EXAMPLES], *orphans[:_EXAMPLES]],
        "tags": sum(len(json.loads(content(each)).get("refs", {})) - 1 for each in _metadata(database)),
    }


def _needed(database: Path) -> dict[str, bool]:
    """All files that the tables name, and whether a reader needs them."""
    named: dict[str, bool] = {}
    for location in _metadata(database):
        for path, is_needed in _named(location):
            named[path] = is_needed or named.get(path, False)
    return named


def _missing(named: Mapping[str, bool], there: Collection[str] | None) -> list[str]:
    """The files that a reader needs and that do not exist. ``there``: the names of those that do, where known."""
    return sorted(path for path, is_needed in named.items() if is_needed and not _exists(path, there))


def _metadata(database: Path) -> list[str]:
    return list(locations(database).values())


def _files(folders: Collection[Path]) -> list[Path]:
    """Those that are not hidden."""
    every = (file for folder in folders for file in folder.rglob("*"))
    return [file for file in every if file.is_file() and not file.name.startswith((".", "_"))]


def _named(location: str) -> Iterator[tuple[str, bool]]:
    """All files of the table with its metadata here, and whether a reader needs them: not those that a snapshot has
    removed, which stay as long as it does.
    """
    metadata: Mapping[str, Any] = json.loads(content(location))
    yield location, True
    yield from ((entry["metadata-file"], True) for entry in metadata.get("metadata-log", ()))
    yield from ((each["statistics-path"], True) for each in metadata.get("statistics", ()))
    seen: set[str] = set()
    for snapshot in metadata.get("snapshots", ()):
        yield snapshot["manifest-list"], True
        for manifest in _entries(snapshot["manifest-list"]):
            path = manifest["manifest_path"]
            if path not in seen:
                seen.add(path)
                yield path, True
                yield from ((entry["data_file"]["file_path"], entry["status"] != _DELETED) for entry in _entries(path))


def _entries(path: str) -> Sequence[Mapping[str, Any]]:
    """Those of a manifest list or a manifest; none if it cannot be read: then the file itself is missing."""
    try:
        return list(avro(path))
    except OSError:
        return ()


def _exists(path: str, there: Collection[str] | None) -> bool:
    if there is not None:
        return Path(path).name in there
    try:
        content(path)
    except OSError:
        return False
    return True
