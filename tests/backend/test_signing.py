"""With a shared secret nobody else can write entries of a sink."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from uuid import UUID

import pytest
from pydantic import ValidationError

from calving.backend.entries import Encoded, Entries
from calving.backend.headers import Signer
from calving.backend.sessions import GroupSession, LogOptions
from calving.model.events import NOTHING_ATTACHED, DataComplete, DataWritten, Publication, StartCommit, TableReference
from calving.model.files import DataFile
from calving.model.offsets import Advance, Span, TopicPartition
from calving.model.sink import Claim, SinkIdentity
from calving.testing.odd_entries import OddEntry, own_with_files, strange

SECRET = "sixteen letters."
OWN = Signer(SECRET.encode(), "control", "g")
SINK = SinkIdentity("x", "g", "control")
TP, COMMIT = TopicPartition("source", 0), UUID(int=1)
FILES = DataWritten(COMMIT, TableReference("c", ("db",), "t"), (DataFile("s3://b/f", "PARQUET", 1, 1),))
PUBLICATION = Publication((FILES, DataComplete(COMMIT)), {TP: Advance(0, 10)}, {TP: (Span(0, 10),)})
ENCODED = Encoded.of_worker("g", PUBLICATION, 900_000).signed(OWN)


def reader() -> Entries:
    """Of a coordinator, which stops at entries of its group that it cannot decode."""
    return Entries("g", "log", OWN, strict=True)


def test_the_entries_of_a_publication_are_read() -> None:
    entries = reader()
    envelopes = [
        entries.envelope(0, n, b"m", v, ENCODED.coverage, ENCODED.beside) for n, v in enumerate(ENCODED.events)
    ]
    assert [e.event for e in envelopes if e is not None] == [FILES, DataComplete(COMMIT)]
    assert not entries.undecodable


def changed(**said: object) -> bytes:
    return json.dumps(json.loads(ENCODED.beside) | said).encode()


def of(signer: Signer | None, group: str = "g") -> tuple[bytes, bytes, bytes]:
    made = Encoded.of_worker(group, PUBLICATION, 900_000).signed(signer)
    return made.events[0], made.coverage, made.beside


FORGED: dict[str, Callable[[], tuple[bytes, bytes | None, bytes | None]]] = {
    "unsigned": lambda: of(None),
    "with another secret": lambda: of(Signer(b"another secret...", "control", "g")),
    "of another topic": lambda: of(Signer(SECRET.encode(), "other", "g")),
    "of another group": lambda: of(Signer(SECRET.encode(), "control", "h")),
    "another event": lambda: (Encoded.of_worker("g", PUBLICATION, 900_000).events[0], ENCODED.coverage, ENCODED.beside),
    "other offsets": lambda: (ENCODED.events[0], b'{"source":{"0":[[0,99]]}}', ENCODED.beside),
    "no offsets": lambda: (ENCODED.events[0], None, ENCODED.beside),
    "another number of parts": lambda: (ENCODED.events[0], ENCODED.coverage, changed(parts=7)),
    "a further digest": lambda: (ENCODED.events[0], ENCODED.coverage, changed(events=[])),
    "a signature of another type": lambda: (ENCODED.events[0], ENCODED.coverage, changed(signature=5)),
    "digests of another type": lambda: (ENCODED.events[0], ENCODED.coverage, changed(events=5)),
    "no header": lambda: (ENCODED.events[0], ENCODED.coverage, None),
}


@pytest.mark.parametrize("kind", FORGED)
def test_a_forged_entry_is_skipped_counted_and_never_fatal(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    entries = reader()
    assert entries.envelope(0, 7, b"mallory", *FORGED[kind]()) is None
    assert entries.undecodable == {"mallory": 1} and not entries.unreadable
    assert "sender 'mallory'" in caplog.text and "is not signed with iceberg.control.secret" in caplog.text


def test_an_entry_that_somebody_repeats_is_skipped_and_counted_and_one_that_the_store_delivers_again_is_not() -> None:
    entries = reader()
    read = [(0, n, b"m", v, ENCODED.coverage, ENCODED.beside) for n, v in enumerate(ENCODED.events)]
    assert all(entries.envelope(*each) is not None for each in (*read, *read))
    assert not entries.undecodable
    assert entries.envelope(0, 9, b"mallory", *read[0][3:]) is None
    assert entries.envelope(1, 0, b"mallory", *read[0][3:]) is None
    assert entries.undecodable == {"mallory": 2} and not entries.unsigned


def test_only_the_last_entries_are_kept_to_notice_those_that_are_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("calving.backend.entries._KEPT", 3)
    entries = reader()
    for n in range(5):
        made = Encoded.of_worker("g", PUBLICATION, 900_000).signed(OWN)
        entries.envelope(0, n, b"m", made.events[0], made.coverage, made.beside)
    assert len(entries._signed) == 3


def test_the_last_unsigned_entry_of_the_group_is_named() -> None:
    entries = reader()
    for n, value in enumerate((of(None, "h"), OddEntry(b"zz"), of(None))):
        assert not entries.unsigned
        entries.envelope(0, n, b"mallory\n", *value)
    assert entries.unsigned == (
        "log, partition 0, offset 2: an entry of sender 'mallory?' is not signed with iceberg.control.secret,"
        " and is ignored"
    )


def test_the_secret_changes_in_three_steps_and_no_entry_is_ignored() -> None:
    """Workers of two steps run at the same time."""
    old, new = {"iceberg.control.secret": SECRET}, {"iceberg.control.secret": "a new secret...."}
    both = {**old, "iceberg.control.old-secret": "a new secret...."}, {**new, "iceberg.control.old-secret": SECRET}
    steps = [LogOptions.model_validate(keys).signer(SINK) for keys in (old, *both, new)]
    for before, after in pairwise(steps):
        for writer, signer in ((before, after), (after, before)):
            entries = Entries("g", "log", signer, strict=True)
            assert entries.envelope(0, 0, b"m", *of(writer)) is not None
    assert Entries("g", "log", steps[-1]).envelope(0, 0, b"m", *of(steps[0])) is None


def test_an_old_secret_needs_a_new_one() -> None:
    with pytest.raises(ValidationError, match=r"iceberg.control.old-secret needs iceberg.control.secret"):
        LogOptions.model_validate({"iceberg.control.old-secret": SECRET})


ODD: dict[str, OddEntry] = {**strange("g"), **own_with_files("g")}


@pytest.mark.parametrize("name", ODD)
def test_an_odd_entry_is_skipped_and_never_fatal(name: str) -> None:
    assert reader().envelope(0, 7, b"mallory", *ODD[name]) is None


def test_an_entry_of_another_group_is_not_counted() -> None:
    entries = reader()
    value, coverage, beside = of(None, "h")
    assert entries.envelope(0, 7, b"m", value, coverage, None) is entries.envelope(0, 8, b"m", value, coverage, beside)
    assert not entries.undecodable and entries.others == {"h"}


class Recording(GroupSession):
    """A session that keeps what it would append."""

    appended: Encoded

    def append(self, publication: Publication, encoded: Encoded, claim: Claim) -> None:
        self.appended = encoded

    def release(self) -> None:
        pass


Recording.__abstractmethods__ = frozenset()


def test_a_session_signs_what_it_publishes_if_there_is_a_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("calving.backend.sessions._has_member", lambda _: True)
    for secret, is_signed in ((SECRET, True), (None, False)):
        session = Recording(SINK, LogOptions.model_validate({"iceberg.control.secret": secret}))  # type: ignore[abstract]
        session.publish(PUBLICATION, Claim("m", None))
        made = session.appended
        assert OWN.verifies(made.events[0], made.coverage, json.loads(made.beside)) is is_signed


def test_a_secret_is_not_shown() -> None:
    assert SECRET not in repr(OWN) and SECRET not in repr(LogOptions.model_validate({"iceberg.control.secret": SECRET}))


def test_a_start_of_a_cycle_is_signed_as_well() -> None:
    made = Encoded.of_coordinator("g", [StartCommit(COMMIT)], NOTHING_ATTACHED, 900_000).signed(OWN)
    assert OWN.verifies(made.events[0], made.coverage, json.loads(made.beside))
