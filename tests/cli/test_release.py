"""``calving release``, attempted again after the first answer was lost."""

from __future__ import annotations

import json
from pathlib import Path
from unittest.mock import Mock
from uuid import UUID, uuid4

import pytest

from calving.backend.memory import MemorySession, MemoryStore
from calving.backend.sessions import read_to_end
from calving.cli.release import Record, Stale, discard
from calving.errors import CommandFailedError, NewerVersionError
from calving.iceberg.parking import Parking
from calving.model.events import Attachment, CommitComplete, DataComplete, DataWritten, Publication, TableReference
from calving.model.files import DataFile
from calving.model.forms import NEWEST, StoredForm
from calving.model.offsets import Advance, Span, TopicPartition
from calving.model.sink import Claim
from calving.runtime.log_view import Replay

TABLE = ("db", "t")


def test_what_the_log_still_has_was_not_released_although_it_is_no_longer_stale() -> None:
    """The table was missing at the first attempt, which did not take effect, and is there at the second."""
    store, source = MemoryStore(1), TopicPartition("t", 0)
    table = TableReference("c", ("db",), "t", None)
    event = DataWritten(uuid4(), table, (DataFile("s3://b/f.parquet", "PARQUET", 1, 1),), ())
    written = Publication((event, DataComplete(event.commit_id)), {source: Advance(None, 1)}, {source: (Span(0, 1),)})
    MemorySession(store, "w").publish(written, Claim("w", 1))
    entries = [e for e in read_to_end(MemorySession(store, "o").follow(replay=True)) if e.event == event]
    recorded: list[Stale] = []

    def attempt(table_is: UUID | None) -> Stale:
        cursor = MemorySession(store, "o").follow(replay=True)
        parking = Parking(Mock())
        return discard(
            cursor, parking, [TABLE], uuid4(), lambda _: table_is, recorded.append, attempted={TABLE: (*entries,)}
        )

    with pytest.raises(CommandFailedError, match=r"table db\.t can take all that is buffered for it"):
        attempt(uuid4())
    assert not recorded
    assert len(attempt(None)[TABLE]) == 1


def test_a_command_that_completes_a_cycle_keeps_the_form_in_use() -> None:
    store = MemoryStore(1)
    leader = MemorySession(store, "l").follow(replay=True)
    leader.acknowledge({0: 0}, (CommitComplete(uuid4()),), Attachment(form=NEWEST))
    command = MemorySession(store, "o").follow(replay=True)
    Replay.of(command).complete(command, uuid4())
    *_, last = read_to_end(MemorySession(store, "n").follow(replay=True))
    assert last.attached.form == NEWEST


def test_no_command_touches_a_log_of_a_newer_form() -> None:
    store = MemoryStore(1)
    leader = MemorySession(store, "l").follow(replay=True)
    later = StoredForm(NEWEST.number + 1, "0.9.0")
    leader.acknowledge({0: 0}, (CommitComplete(uuid4()),), Attachment(form=later))
    with pytest.raises(NewerVersionError, match=r"install version 0\.9\.0 or later"):
        Replay.of(MemorySession(store, "o").follow(replay=True))


def test_a_list_of_another_run_is_neither_replaced_nor_removed(tmp_path: Path) -> None:
    path = tmp_path / "released.json"
    path.write_text("mine")
    record = Record(path)
    with pytest.raises(CommandFailedError, match=r"released\.json is there already"):
        record.write({})
    record.remove()
    assert path.read_text() == "mine"


def test_a_run_replaces_and_removes_its_own_list(tmp_path: Path) -> None:
    path = tmp_path / "released.json"
    record = Record(path)
    record.write({})
    record.write({TABLE: ()})
    assert json.loads(path.read_text())["tables"]
    record.remove()
    assert not path.exists()
