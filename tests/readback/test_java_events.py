"""The Java sink's own classes read the events that calving writes."""

from __future__ import annotations

import dataclasses
import subprocess
from pathlib import Path
from uuid import UUID

import pytest

from calving.host import java
from calving.model.events import (
    CommitComplete,
    CommitToTable,
    DataComplete,
    DataWritten,
    Event,
    PartitionProgress,
    StartCommit,
    TableReference,
)
from calving.model.files import DataFile, FileContent, PartitionField, PartitionTuple
from calving.model.offsets import TopicPartition
from calving.services.maven import Artifact, jars
from calving.wire.codec import Message, encode

pytestmark = pytest.mark.services

COMMIT, TS = UUID(int=7), 1704164645678901
TABLE = TableReference("cat", ("db",), "t", UUID(int=3))
PARTITION = PartitionTuple(
    (
        PartitionField("ts_day", 1000, '{"type":"int","logicalType":"date"}'),
        PartitionField("na-me", 1001, '"string"'),
        PartitionField("id_bucket", 1002, '"int"'),
    ),
    (19000, "x", 3),
)
FILE = DataFile(
    "s3://b/f.parquet",
    "PARQUET",
    3,
    100,
    spec_id=2,
    partition=PARTITION,
    value_counts={1: 3},
    lower_bounds={1: b"\x01" + bytes(7)},
    upper_bounds={1: b"\x09" + bytes(7)},
)
DELETES = dataclasses.replace(
    FILE, file_path="s3://b/d.parquet", content=FileContent.EQUALITY_DELETES, equality_ids=(1, 2)
)


def decoded_by_java(*events: Event) -> list[str]:
    artifacts = [
        Artifact("org.apache.iceberg", "iceberg-kafka-connect-events", "1.12.0"),
        Artifact("org.apache.iceberg", "iceberg-core", "1.12.0"),
        Artifact("org.slf4j", "slf4j-nop", "2.0.16"),
    ]
    lines = "\n".join(encode(Message(UUID(int=1), TS, "connect-x", event)).hex() for event in events)
    source = Path(__file__).with_name("Decode.java")
    command = [java(), "-cp", f"{jars('iceberg-events', artifacts)}/*", str(source)]
    done = subprocess.run(command, input=lines, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.splitlines()


def test_java_decodes_every_event() -> None:
    progress = (PartitionProgress(TopicPartition("s", 0), 10, TS), PartitionProgress(TopicPartition("s", 1)))
    found = decoded_by_java(
        StartCommit(COMMIT),
        DataWritten(COMMIT, TABLE, (FILE,), (DELETES,)),
        DataWritten(COMMIT, dataclasses.replace(TABLE, table_uuid=None)),
        DataComplete(COMMIT, progress),
        CommitToTable(COMMIT, TABLE, 5, TS),
        CommitComplete(COMMIT),
    )
    assert found == [
        "connect-x StartCommit",
        "connect-x DataWritten db.t s3://b/f.parquet 3 2 PartitionData{ts_day=19000, na_x2Dme=x, id_bucket=3}"
        " {1=3} [1] s3://b/d.parquet EQUALITY_DELETES [1, 2]",
        "connect-x DataWritten db.t",
        "connect-x DataComplete s-0@10 2024-01-02T03:04:05.678901Z s-1@null null",
        "connect-x CommitToTable 5 2024-01-02T03:04:05.678901Z",
        "connect-x CommitComplete null",
    ]
