"""The page with the life of a record: what each stage makes of it, taken from a batch that runs and is committed."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import DayTransform
from pyiceberg.types import DecimalType, LongType, NestedField, StringType, TimestamptzType

import calving.tasks.task
from calving.backend import Claim, Encoded, SinkIdentity
from calving.backend.memory import MemoryBackend, MemoryStore
from calving.casting.table import TableConverter
from calving.engine.interface import LocalEngine
from calving.iceberg.catalog import open_catalog
from calving.iceberg.rules import TableRules
from calving.iceberg.tables import Tables
from calving.iceberg.target import IcebergTarget
from calving.model.dead_letters import Headers
from calving.model.events import DataComplete, DataWritten, StartCommit
from calving.model.offsets import Range, Span, TopicPartition
from calving.protocol.commit import CommitLoop
from calving.protocol.effects import Publish, RunBatch
from calving.protocol.ledger import SourceProgress
from calving.protocol.ledger_key import LedgerKey
from calving.protocol.positions import Position
from calving.protocol.worker import BatchLimits, WorkerMachine
from calving.records.values import Decoded, Payloads
from calving.runtime.batch import BatchRunner, ErrorLimits
from calving.runtime.parts import record_path
from calving.settings.files import flat
from calving.settings.load import parse
from calving.source.reading import Block, Reader, header_column
from calving.tasks.decode import Decoders
from calving.tasks.route import Router
from calving.transforms.chain import Chain
from calving.wire.codec import decode as message
from tests.cli.pages import DOCS, matches

PAGE = "explanation/life-of-a-record.md"
SHOP = TopicPartition("shop", 0)
COMMIT = UUID("1f0c9b7e-5d0a-4c1e-9a70-3f1d0e6b2c11")
VALUE = (
    b'{"order": {"id": 17, "price": "12.50"}, "item": "lamp", "at": "2026-11-27T08:15:00Z", "country": "de", "cart": 4}'
)
HEADERS: Headers = (("trace", b"a1"),)
SCHEMA = Schema(
    NestedField(1, "order_id", LongType()),
    NestedField(2, "order_price", DecimalType(9, 2)),
    NestedField(3, "item", StringType()),
    NestedField(4, "at", TimestamptzType()),
    NestedField(5, "country", StringType()),
)
KEY = LedgerKey("control", "connect-shop", "log")


class Message(Block):
    """One message, as a reader delivers it."""

    def __init__(self, source: Range) -> None:
        self.source = source

    def __len__(self) -> int:
        return 1

    values = Payloads([VALUE])
    keys = Payloads([b"17"])
    offsets = pa.array([41], pa.int64())
    timestamps_ms = pa.array([1_795_767_301_000], pa.int64())
    headers = header_column([HEADERS])


class MessageReader(Reader):
    def read(self, sources: Sequence[Range]) -> Generator[Block]:
        yield Message(sources[0])


class Stages:
    """What each stage has made of the record, as lines of text."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.lines: dict[str, list[str]] = {}
        self._patch = monkeypatch

    def show(self, stage: str, **values: object) -> None:
        self.lines[stage] = [f"{name}: {value}" for name, value in values.items()]

    def watch(self, owner: Any, method: str, see: Callable[[Any], None]) -> None:
        """Show results of ``owner.method`` as the batch calls it."""
        original = getattr(owner, method)

        def watched(self: Any, *arguments: Any, **named: Any) -> Any:
            result = original(self, *arguments, **named)
            see(result)
            return result

        self._patch.setattr(owner, method, watched)

    def watch_all(self) -> None:
        def transformed(result: Any) -> None:
            (records,) = result.records
            self.show("transformed", type=records.value.type, value=records.value[0].as_py())

        def cast(result: Any) -> None:
            self.show(
                "cast", type=f"struct<{', '.join(map(str, fields(result.rows)))}>", row=result.rows.to_pylist()[0]
            )

        decode = Decoders.decode

        def decoded(*given: Any) -> Iterator[Decoded]:
            for part in decode(*given):
                data: Any = part.values[0].data
                self.show("decoded", type=data.type, value=data[0].as_py())
                yield part

        self._patch.setattr(Decoders, "decode", decoded)
        self.watch(Chain, "apply", transformed)
        self.watch(Router, "by_field", lambda result: self.show("routed", tables=list(result)))
        self.watch(TableConverter, "convert", cast)


def bounds(entry: DataWritten) -> str:
    (file,) = entry.data_files
    return json.dumps({number: bound.hex() for number, bound in (file.lower_bounds or {}).items()})


def fields(rows: pa.RecordBatch) -> list[str]:
    return [f"{field.name}: {field.type}" for field in rows.schema]


@pytest.fixture
def stages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """A batch of one record, from its message to the snapshot."""
    seen = Stages(monkeypatch)
    seen.show(
        "message",
        topic="shop, partition 0, offset 41",
        timestamp=Message.timestamps_ms[0].as_py(),
        key=Message.keys[0],
        value=VALUE.decode(),
        headers=HEADERS,
    )
    seen.watch_all()
    monkeypatch.setattr(calving.tasks.task, "open_reader", lambda *_, **__: MessageReader())
    catalog = open_catalog("iceberg", {"type": "embedded", "warehouse": str(tmp_path)})
    catalog.create_namespace("db")
    day = PartitionSpec(PartitionField(4, 1000, DayTransform(), "at_day"))
    for name in ("db.german", "db.others"):
        catalog.create_table(name, SCHEMA, partition_spec=day)
    path = record_path(parse(flat(tomllib.loads(settings()))))
    runner = BatchRunner(LocalEngine(), Tables(catalog, "iceberg", TableRules()), path, ErrorLimits(0, 0.0))
    session = MemoryBackend(
        SinkIdentity("shop", "connect-shop", "control"), store=MemoryStore(positions={SHOP: 41})
    ).open("worker")
    log = session.follow(replay=True)
    log.acknowledge({}, [StartCommit(COMMIT)])
    worker = WorkerMachine(BatchLimits(1000, 1_000_000))
    worker.assigned({SHOP: Position(41, 41)})
    for envelope in log.read(0):
        worker.heard(envelope)
    (batch,) = worker.tick({SHOP: 42})
    assert isinstance(batch, RunBatch)
    outcome = runner.run(batch.spans)
    runner.close()
    worker.finished(batch.number, outcome)
    (publish,) = worker.tick({SHOP: 42})
    assert isinstance(publish, Publish)
    written, complete = publish.publication.events
    assert isinstance(written, DataWritten) and isinstance(complete, DataComplete)
    (file,) = written.data_files
    row = pq.read_table(file.file_path.removeprefix("file://")).to_pylist()[0]
    place = "/".join(Path(file.file_path).parts[-3:])
    seen.show(
        "file",
        path=place,
        partition=dict(zip([f.name for f in file.partition.fields], file.partition.values, strict=True)),
        **{"rows, bytes": f"{file.record_count}, {file.file_size_in_bytes}"},
        row=row,
    )
    encoded = Encoded.of_worker("connect-shop", publish.publication, 900_000)
    headers = {"calving-spans": encoded.coverage.decode(), "calving-beside": encoded.beside.decode()}
    entry = message(encoded.events[0]).event
    assert isinstance(entry, DataWritten)
    seen.show(
        "entry",
        event=entry,
        file="/".join(Path(entry.data_files[0].file_path).parts[-3:]),
        bounds=bounds(entry),
        **headers,
    )
    seen.show("answer", event=complete)
    session.publish(publish.publication, Claim("worker", None))
    target = IcebergTarget(catalog, ("db", "german"), "main", KEY, {"kafka.connect.commit-id": str(COMMIT)})
    CommitLoop(target, KEY, 5).settle(
        log.read(0)[:1], {0: 3}, SourceProgress({SHOP: (Span(0, 42),)}, {SHOP: (Span(0, 41),)})
    )
    snapshot = catalog.load_table("db.german").current_snapshot()
    assert snapshot is not None and snapshot.summary is not None
    summary = snapshot.summary.additional_properties
    seen.show("snapshot", **{key: summary[key] for key in sorted(summary) if "kafka" in key or "calving." in key})
    return seen.lines


def settings() -> str:
    """The configuration on the page."""
    (text,) = re.findall(r"```toml\n(.*?)```", (DOCS / PAGE).read_text(), re.DOTALL)
    return str(text)


def shown() -> dict[str, str]:
    """The blocks of the page, by stage."""
    text = (DOCS / PAGE).read_text()
    return dict(re.findall(r"<!-- stage: (\w+) -->\n```text\n(.*?)```", text, re.DOTALL))


def test_the_page_shows_each_stage_of_the_record_as_it_is(stages: dict[str, list[str]]) -> None:
    page = shown()
    assert list(page) == list(stages)
    for stage, lines in stages.items():
        assert matches(page[stage], "\n".join(lines)), f"stage {stage} is:\n" + "\n".join(lines)


def test_every_module_that_the_page_names_is_there() -> None:
    core = Path(calving.tasks.task.__file__).parents[1]
    named = set(re.findall(r"`([a-z_]+/[a-z_]+\.py)`", (DOCS / PAGE).read_text()))
    assert len(named) > 8
    assert [name for name in named if not (core / name).exists()] == []
