"""What a sink stores: this version writes the same bytes as before, and continues what earlier versions have written."""

from __future__ import annotations

import base64
import json
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from calving.backend.entries import Entries
from calving.iceberg.catalog import open_catalog
from calving.iceberg.parking import Parking
from calving.iceberg.target import IcebergTarget
from calving.model.events import DataWritten, Envelope, Parked
from calving.model.offsets import Span
from calving.protocol.commit import CommitLoop
from calving.protocol.ledger import SourceProgress
from calving.protocol.ledger_key import LedgerKey
from calving_kafka.notes import Note, read_note
from calving_zookeeper.store import StoredState
from tests.backend.stored import BRANCH_KEY, FIRST, KEY, LEDGER, PROGRESS, TABLE, Files, entry, stored
from tests.protocol.lines import line_of

GOLDENS = Path(__file__).parents[1] / "goldens"
NOW: dict[str, Any] = json.loads((GOLDENS / "stored-0.2.json").read_text())
BEFORE: dict[str, Any] = json.loads((GOLDENS / "stored-before-0.2.json").read_text())
"""What commit c58fc62 has written, the last one before 0.2.0."""
VERSIONS = pytest.mark.parametrize("golden", [NOW, BEFORE], ids=["0.2", "before 0.2"])


def test_every_stored_format_is_written_byte_for_byte() -> None:
    assert stored() == NOW


def test_0_2_adds_versions_branches_and_the_place_of_the_last_commit_and_changes_nothing_else() -> None:
    def without(added: tuple[str, ...], text: str) -> dict[str, object]:
        return {name: value for name, value in json.loads(text).items() if name not in added}

    now = json.loads(json.dumps(NOW))
    del now["commit"]["properties"][KEY.of_table("calving.ledger-snapshot")]
    sent, sent_before = now["control_log"]["publication"], BEFORE["control_log"]["publication"]
    assert without(("version",), sent.pop("beside")) == json.loads(sent_before["beside"])
    assert sent == {name: sent_before[name] for name in sent}
    for name, text in now.pop("parked").items():
        assert without(("versions", "branches"), text) == json.loads(BEFORE["parked"][name])
    rest = {name: value for name, value in BEFORE.items() if name != "parked"}
    rest["control_log"] = {**rest["control_log"], "publication": sent}
    assert now == rest


@VERSIONS
def test_parked_commits_of_both_are_read(golden: dict[str, Any]) -> None:
    files = Files()
    files.content = {name: zlib.compress(text.encode()) for name, text in golden["parked"].items()}
    (together,) = Parking(files).commits(TABLE.identifier, Parked([*files.content][-1], 3, {}))
    assert together.entries == (entry(3), entry(4), entry(5))
    assert (together.read, together.progress) == ({0: 6, 1: 4}, PROGRESS)


@VERSIONS
def test_stored_positions_of_both_are_read(golden: dict[str, Any]) -> None:
    said = golden["positions"]
    assert read_note(said["published"]) == Note("JfUaVlT2R5e", "log-1", "orders-0", "m 1/ä")
    assert read_note(said["rewound"]) == Note(None, "log-1")
    assert StoredState.of(said["zookeeper"].encode()).positions == {"orders:0": 60}


@VERSIONS
@pytest.mark.parametrize(("key", "name"), [(KEY, "properties"), (BRANCH_KEY, "branch")])
def test_ledgers_of_both_are_read(golden: dict[str, Any], key: LedgerKey, name: str) -> None:
    read = key.read(line_of(), golden["properties"][name])
    assert (read.control, read.source, read.settled, read.missing) == (
        LEDGER.control,
        LEDGER.source,
        LEDGER.settled,
        LEDGER.missing,
    )
    assert key.gets_all_again(golden["properties"]["recovered"]) is (key is KEY)


def entries_of(golden: dict[str, Any], name: str, offset: int) -> list[Envelope]:
    said, reader = golden["control_log"][name], Entries("connect-orders", "log", strict=True)
    headers = said["spans"].encode(), said["beside"].encode()
    heard = [
        reader.envelope(0, offset + i, b"m-1", base64.b64decode(event), *headers)
        for i, event in enumerate(said["events"])
    ]
    return [envelope for envelope in heard if envelope is not None]


@VERSIONS
def test_a_table_and_a_control_log_of_both_are_continued_and_nothing_is_committed_twice(
    golden: dict[str, Any], tmp_path: Path
) -> None:
    catalog = open_catalog("c", {"type": "embedded", "warehouse": str(tmp_path)})
    catalog.create_namespace("db")
    # The sink has committed the log below offset 6; the snapshot has expired, and its ledger is in the properties.
    properties = {name: text for name, text in golden["commit"]["properties"].items() if "snapshot" not in name}
    schema = Schema(NestedField(1, "id", LongType(), required=False))
    table = catalog.create_table("db.t", schema, properties=properties)

    def here(envelope: Envelope) -> Envelope:
        event = envelope.event
        assert isinstance(event, DataWritten)
        path = f"{table.location()}/data/{envelope.offset}.parquet"
        return replace(envelope, event=replace(event, data_files=(replace(event.data_files[0], file_path=path),)))

    old, new = (here(entries_of(golden, "publication", offset)[0]) for offset in (5, 6))
    target = IcebergTarget(catalog, TABLE.identifier, "main", KEY, {})
    later = replace(new, spans={FIRST: (Span(60, 70),)}, restarted=frozenset())
    CommitLoop(target, KEY, 5).settle([old, later], {0: 8}, SourceProgress({FIRST: (Span(0, 70),)}, {}))
    files = [row["file_path"] for row in catalog.load_table("db.t").inspect.files().to_pylist()]
    assert files == [f"{table.location()}/data/6.parquet"]
