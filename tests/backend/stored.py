"""What a sink stores, as the version that runs this module writes it: python -m tests.backend.stored prints it as JSON.

It uses only names that the tree before 0.2.0 has, too: with the packages of another commit in PYTHONPATH it prints
what that commit writes. Where the packages move, the imports here follow; the goldens stay.
"""

from __future__ import annotations

import base64
import json
import re
import sys
import tempfile
import zlib
from pathlib import Path
from unittest.mock import patch
from uuid import UUID

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

import calving.backend.entries as entries_module
from calving.backend.entries import Encoded
from calving.iceberg.catalog import open_catalog
from calving.iceberg.parking import ParkedCommit, Parking
from calving.iceberg.target import IcebergTarget
from calving.model.events import (
    Attachment,
    CommitComplete,
    DataComplete,
    DataWritten,
    Envelope,
    Leader,
    Parked,
    PartitionProgress,
    Publication,
    StartCommit,
    TableId,
    TableReference,
)
from calving.model.files import DataFile
from calving.model.marks import TableMark
from calving.model.offsets import Span, TopicPartition
from calving.mutations.cache import KeyCache
from calving.mutations.columns import Column
from calving.protocol.commit import CommitLoop
from calving.protocol.ledger import Ledger, SourceProgress
from calving.protocol.ledger_key import LedgerKey
from calving.version import __version__
from calving_kafka.notes import Note
from calving_zookeeper.store import StoredState

COMMIT = UUID(int=1)
TABLE = TableReference("c", ("db",), "t", UUID(int=7))
FIRST, OTHER = TopicPartition("orders", 0, "JfUaVlT2R5e"), TopicPartition("orders.eu", 2)
PROGRESS = SourceProgress(
    {FIRST: (Span(0, 60),), OTHER: (Span(4, 9),)}, {FIRST: (Span(0, 30),)}, {OTHER: (0, 1)}, {0: 2}
)
KEY = LedgerKey("control", "connect-orders", "log-1")
BRANCH_KEY = LedgerKey("control", "connect-orders", "log-1", "audit")
LEDGER = Ledger(
    {0: 6, 1: 4}, {FIRST: 60, OTHER: 9}, {FIRST: 30, OTHER: 9}, {FIRST: (Span(30, 40),)}, {OTHER: (Span(1, 3),)}
)
COLUMN = Column(1, LongType())


class Files:
    """The storage of parked commits, in memory."""

    def __init__(self) -> None:
        self.content: dict[str, bytes] = {}

    def write(self, table: TableId, location: str, data: bytes) -> None:
        self.content[location] = data

    def read(self, table: TableId, location: str) -> bytes:
        return self.content[location]

    def delete(self, table: TableId, location: str) -> None:
        del self.content[location]


def written(offset: int) -> DataWritten:
    """The event of one data file, with its statistics."""
    path = f"s3://b/t/data/00000-0-{UUID(int=2)}-{offset:05d}.parquet"
    bound = offset.to_bytes(8, "little")
    file = DataFile(path, "PARQUET", 10, 100, value_counts={1: 10}, null_value_counts={1: 0}, lower_bounds={1: bound})
    return DataWritten(COMMIT, TABLE, (file,))


def entry(offset: int) -> Envelope:
    return Envelope(0, offset, written(offset), {FIRST: (Span(offset * 10, offset * 10 + 10),)})


def parked() -> dict[str, str]:
    """Two parked commits, each with its file's name, and its content not compressed; the second names the first."""
    storage, names = Files(), iter(("n0", "n1"))
    parking = Parking(storage, lambda: next(names))
    first = parking.park(TABLE.identifier, ParkedCommit((entry(3),), {0: 4}, PROGRESS), None)
    second = ParkedCommit((entry(4), entry(5)), {0: 6, 1: 4}, PROGRESS)
    parking.park(TABLE.identifier, second, Parked(first, 1, {}))
    return {name: zlib.decompress(data).decode() for name, data in storage.content.items()}


def control_log() -> dict[str, dict[str, object]]:
    """The entries of one cycle: the bytes of each event, and the two headers."""
    complete = DataComplete(COMMIT, (PartitionProgress(FIRST, 60, 1_700_000_000_000_000),))
    publication = Publication((written(3), complete), {}, {FIRST: (Span(30, 40),)}, restarted=frozenset({FIRST}))
    attached = Attachment(
        {FIRST: (Span(0, 30),)},
        {TABLE.identifier: TableMark("u-1", 7)},
        {("db", "late"): Parked("s3://b/late/calving-parked-n1.json.z", 3, {FIRST: (Span(0, 10),)})},
        frozenset({(0, 5), (0, 2)}),
        Leader("m-1", "k1", "https://k1:8083/"),
        restarts={OTHER: (0, 1)},
    )
    with (
        patch.object(entries_module, "uuid4", lambda: UUID(int=9)),
        patch("time.time_ns", lambda: 1_700_000_000 * 10**9),
    ):
        sent = {
            "start": Encoded.of_coordinator("connect-orders", [StartCommit(COMMIT)], Attachment(), 100_000),
            "publication": Encoded.of_worker("connect-orders", publication, 100_000),
            "complete": Encoded.of_coordinator("connect-orders", [CommitComplete(COMMIT, None)], attached, 100_000),
        }
    return {
        name: {
            "events": [_text(event) for event in each.events],
            "spans": each.coverage.decode(),
            "beside": each.beside.decode().replace(__version__, "<version>"),
        }
        for name, each in sent.items()
    }


def positions() -> dict[str, str]:
    """The notes of positions in Kafka, and the state in ZooKeeper."""
    return {
        "published": str(Note("JfUaVlT2R5e", "log-1", "orders-0", "m 1/ä")),
        "rewound": str(Note(None, "log-1")),
        "zookeeper": StoredState("s-1", 9, 2, 7, {"orders:0": 60}, {"orders:0": "JfUaVlT2R5e"}).to_bytes().decode(),
    }


def properties() -> dict[str, dict[str, str]]:
    """The ledger as summary entries and as table properties, also of another branch."""
    return {
        "summary": KEY.summary(LEDGER),
        "properties": KEY.properties(LEDGER),
        "branch": BRANCH_KEY.properties(LEDGER),
        "recovered": KEY.recovered_at("log-0", {0: 7, 1: 3}, again=True),
    }


def commit() -> dict[str, dict[str, str]]:
    """The summary and the properties of a table after one commit, without sizes of files and the random ids."""
    with tempfile.TemporaryDirectory() as folder:
        catalog = open_catalog("c", {"type": "embedded", "warehouse": f"{folder}/w"})
        catalog.create_namespace("db")
        table = catalog.create_table("db.t", Schema(NestedField(1, "id", LongType(), required=False)))
        event = DataWritten(COMMIT, TABLE, (DataFile(f"{table.location()}/data/f.parquet", "PARQUET", 10, 100),))
        target = IcebergTarget(catalog, TABLE.identifier, "main", KEY, {"kafka.connect.commit-id": str(COMMIT)})
        heard = Envelope(0, 5, event, {FIRST: (Span(0, 60),)})
        CommitLoop(target, KEY, 5).settle([heard], {0: 6}, SourceProgress({FIRST: (Span(0, 60),)}, {}))
        metadata = catalog.load_table("db.t").metadata
        head = metadata.snapshots[-1].summary
        assert head is not None
        found = {"summary": head.additional_properties, "properties": metadata.properties}
        return {name: {k: _masked(v) for k, v in said.items()} for name, said in found.items()}


def key_cache() -> dict[str, str]:
    """The content of the file with a data file's keys. The cache ends with its process, so names may change."""
    with tempfile.TemporaryDirectory() as folder:
        cache = KeyCache(1_000_000, Path(folder))
        batch = pa.RecordBatch.from_pydict({"1": pa.array([3, 1, 2], pa.int64())})
        list(cache.batches("s3://b/t/data/f.parquet", [COLUMN], lambda: iter([batch]), "db.t")[0])
        (path,) = Path(folder).glob("*/*")
        return {"keys": _text(path.read_bytes())}


def stored() -> dict[str, object]:
    """Everything, by the name of its format."""
    makers = (parked, control_log, positions, properties, commit, key_cache)
    return {maker.__name__: maker() for maker in makers}


def _masked(text: str) -> str:
    return re.sub(r"^\d{10,}:", "<snapshot>:", text)


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


if __name__ == "__main__":
    json.dump(stored(), sys.stdout, indent=1, ensure_ascii=False, sort_keys=True)
    print()
