"""Encodes events as entries of a control log, and decodes them, for every backend."""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple
from uuid import uuid4

from calving.backend.headers import Headers, Signer
from calving.errors import DataLossError, StaleError
from calving.model.events import (
    NO_COMMIT,
    NOTHING_ATTACHED,
    Attachment,
    CommitToTable,
    DataComplete,
    DataWritten,
    Envelope,
    Event,
    Place,
    Publication,
    StartCommit,
    WorkerEnd,
)
from calving.model.forms import OLDEST
from calving.model.marks import TableMark
from calving.model.offsets import (
    SourceOffsets,
    TopicPartition,
    encode_coverage,
    encode_covered,
    encode_places,
    encode_settled,
)
from calving.model.text import printable
from calving.protocol.forms import refuse_newer
from calving.version import __version__
from calving.wire.codec import Head, Message, UndecodableError, decode, divide, encode, head_of

log = logging.getLogger(__name__)

BEFORE = 500
"""How many entries before the saved position ``watch`` reads. They include the entries of the last cycle."""

_LONGEST = 300
"""The longest text of somebody else in a line of the log, in characters."""
_KEPT = 10_000
"""How many signed entries are kept, to notice those that somebody repeats."""
_UNSIGNED = "is not signed with iceberg.control.secret"
MOST_GROUPS, _MOST = 1_000, 100
"""How many other groups are kept; and how many senders are counted each by itself, and entries are kept that a
coordinator could not pass.
"""


def payloads(group: str, events: Iterable[Event], max_bytes: int) -> list[bytes]:
    """Events as the bytes of entries. An event with a long list of files is divided into several events."""
    parts: list[Event] = []
    for event in events:
        parts += divide(event, max_bytes) if isinstance(event, DataWritten) else [event]
    now_us = time.time_ns() // 1000
    return [encode(Message(uuid4(), now_us, group, part)) for part in parts]


def partition_key(tp: TopicPartition) -> str:
    """A source partition as stores name it: topic and number, joined by a colon, which no topic name contains."""
    return f"{tp.topic}:{tp.partition}"


def stale(place: object, stored: object, start: object) -> StaleError:
    """The error that refuses a publication because of one stored position."""
    return StaleError(
        f"publication refused: the stored position of {place} is {stored}, but the publication starts at {start};"
        " another worker has published"
    )


def check_starts(publication: Publication, stored: SourceOffsets) -> None:
    """Compare the stored positions with the positions at which the publication starts (B2).

    :raises StaleError: a stored position differs.
    """
    for tp, advance in publication.advances.items():
        if stored.get(tp) != advance.start:
            raise stale(tp, stored.get(tp), advance.start)


def covered_text(publication: Publication) -> bytes:
    """The text of a header: the source offsets that a publication covers. Empty if it covers none."""
    return encode_covered(publication.spans, publication.restarted).encode() if publication.spans else b""


def settled_text(attached: Attachment) -> bytes:
    """The text of the same header for a coordinator's events: the settled source offsets. Empty if there are none."""
    told = attached.settled or attached.restarted
    return encode_settled(attached.settled, attached.restarted).encode() if told else b""


def beside_text(
    group: str,
    events: Sequence[Event],
    values: Sequence[bytes],
    attached: Attachment = NOTHING_ATTACHED,
    **more: object,
) -> bytes:
    """The text of the second header of the events in ``values``: the sender, its version, the number of parts, the
    attachment, and ``more``.
    """
    header: dict[str, object] = {"group": group, **more}
    if any(isinstance(event, DataWritten) for event in events):
        header["version"] = __version__
    if any(isinstance(event, DataComplete) for event in events):
        header["parts"] = len(values) - sum(not isinstance(event, DataWritten) for event in events)
    return json.dumps(header | _attached(attached), separators=(",", ":")).encode()


def _attached(attached: Attachment) -> dict[str, object]:
    parked = [[*t, p.last, p.entries, encode_coverage(p.waiting)] for t, p in attached.parked.items()]
    values: dict[str, object] = {
        "tables": [[*table, mark.uuid, mark.sequence] for table, mark in attached.marks.items()],
        "controls": _controls(attached.marks.values()),
        "parked": parked,
        "restarts": encode_places(attached.restarts) if attached.restarts else "",
        "leader": attached.leader,
        "form": attached.form if attached.form != OLDEST else None,
        "released": sorted(attached.released),
        "read": sorted(attached.read.items()),
        "members": [member.as_json() for member in attached.members],
        "unanswered": attached.unanswered,
        "state": attached.state,
    }
    return {name: value for name, value in values.items() if value}


def _controls(marks: Iterable[TableMark]) -> list[list[list[int]] | None]:
    """The control offsets of each mark, in the order of ``tables``; empty if none is known. They stand apart, because
    earlier versions take everything before the last two values of a table for its name.
    """
    said = [None if mark.control is None else [*map(list, sorted(mark.control.items()))] for mark in marks]
    return said if any(said) else []


def _branches(publication: Publication) -> dict[str, object]:
    """The branches for which the files of a publication are written. They stand beside each of its events, so only
    tables with another branch than most are named.
    """
    branches = publication.branches
    written = [event.table.identifier for event in publication.events if isinstance(event, DataWritten)]
    if branches is None or not written:
        return {}
    others = [[*t, branch] for t in dict.fromkeys(written) if (branch := branches.of(t)) != branches.default]
    return {"branch": branches.default} | ({"branches": others} if others else {})


class Encoded(NamedTuple):
    """Events as the bytes of entries, and the two headers of each of them."""

    events: list[bytes]
    coverage: bytes
    beside: bytes
    parked: bool = False
    """Whether the headers name parked commits."""

    def signed(self, signer: Signer | None) -> Encoded:
        """The same, signed if there is a secret."""
        if signer is None:
            return self
        return self._replace(beside=signer.signed(self.events, self.coverage, self.beside))

    @classmethod
    def of_worker(cls, group: str, publication: Publication, max_bytes: int) -> Encoded:
        """The events of a publication."""
        events = payloads(group, publication.events, max_bytes)
        more: dict[str, object] = {} if publication.paused_ms is None else {"paused": publication.paused_ms}
        if publication.member is not None:
            more["member"] = publication.member.as_json()
        more |= _branches(publication)
        if publication.ordered:
            more["ordered"] = sorted(publication.ordered)
        if publication.wanted:
            more["wanted"] = True
        beside = beside_text(group, publication.events, events, NOTHING_ATTACHED, **more)
        return cls(events, covered_text(publication), beside)

    @classmethod
    def of_coordinator(cls, group: str, events: Sequence[Event], attached: Attachment, max_bytes: int) -> Encoded:
        """A coordinator's events, with its attachment."""
        values = payloads(group, events, max_bytes)
        beside = beside_text(group, events, values, attached)
        return cls(values, settled_text(attached), beside, bool(attached.parked))

    @classmethod
    def of_end(cls, group: str, end: WorkerEnd, max_bytes: int) -> Encoded:
        """The event that tells the end of a worker: an answer to no cycle, about no partition, which every version and
        the Java sink pass over.
        """
        values = payloads(group, [DataComplete(NO_COMMIT)], max_bytes)
        said = {"group": group, "parts": 0, "end": end}
        return cls(values, b"", json.dumps(said, separators=(",", ":")).encode())


class Entries:
    """Decodes the entries of one group. Entries that cannot be decoded are skipped, counted, and, if ``logs``, logged
    once per sender.

    ``strict``, for a coordinator: an entry of the group that may have files, or source offsets of files, is never
    skipped; if it cannot be decoded, that is an error. ``progress``: whether to decode the partitions of a
    DataComplete. ``signer``: entries of the group that it has not signed are skipped, too, and so are signed ones that
    somebody has repeated.
    """

    def __init__(
        self,
        group: str,
        log_name: str,
        signer: Signer | None = None,
        *,
        strict: bool = False,
        progress: bool = False,
        logs: bool = True,
    ) -> None:
        self._signer, self._logs = signer, logs
        self._group, self._log_name, self._strict, self._progress = group, log_name, strict, progress or strict
        self.undecodable: Counter[str] = Counter()
        self.others: set[str] = set()
        """The first other groups that have entries in the log. Anybody can make up more."""
        self.unreadable: dict[Place, str] = {}
        """The sentences with which a coordinator would stop at entries of the group that it cannot pass."""
        self.unsigned = ""
        """A sentence on the last entry of the group that is not signed."""
        self._signed: dict[bytes, Place] = {}
        """The last signed entries, by the digest of their events. Each event has an id, so no two are equal."""

    def envelope(
        self,
        partition: int,
        offset: int,
        sender: bytes,
        value: bytes,
        spans: bytes | None,
        beside: bytes | None = None,
    ) -> Envelope | None:
        """The envelope of an entry; None for an entry of another group, and for a skipped one.

        :raises DataLossError: an entry of this sink cannot be read.
        :raises NewerVersionError: an entry of this sink cannot be decoded, and names a form that this version does not
            know.
        """
        headers = Headers.of(spans, beside)
        if self._is_of_another(headers.group):
            return None
        place = partition, offset
        if self._signer is not None and not self._is_signed(self._signer, place, sender, value, headers):
            return None
        kind: type[Event] | None = None
        try:
            # Every worker reads the entries of all others, but only a coordinator needs their partitions.
            decoded = decode(value, progress=self._progress)
            kind = type(decoded.event)
            if self._is_of_another(decoded.group):
                return None
            return replace(headers.envelope(place, decoded.event, _name(sender)), at_us=decoded.timestamp_us)
        except UndecodableError as reason:
            if headers.group == self._group:
                refuse_newer(headers.form)
            head = Head(self._group, kind) if kind is not None else head_of(value)
            if head is not None and self._is_of_another(head.group):
                return None
            if self._may_have_files(headers, head):
                self._refuse(place, reason)
            self._skip(self._where(place), sender, f"cannot be decoded: {printable(str(reason), _LONGEST)}")
            return None

    def _is_signed(self, signer: Signer, place: Place, sender: bytes, value: bytes, headers: Headers) -> bool:
        """Whether an entry is signed, and no copy of an earlier one. Otherwise skip it, and count it unless it is
        another group's.
        """
        where = self._where(place)
        if signer.verifies(value, headers.coverage, headers.beside):
            first = self._signed.setdefault(hashlib.sha256(value).digest(), place)
            if len(self._signed) > _KEPT:
                del self._signed[next(iter(self._signed))]
            if first != place:
                self._skip(where, sender, f"repeats the entry at partition {first[0]}, offset {first[1]}")
            return first == place
        head = head_of(value)
        if head is None or not self._is_of_another(head.group):
            self._skip(where, sender, _UNSIGNED)
        if self._group in (headers.group, head and head.group):
            self.unsigned = f"{where}: an entry of sender '{_name(sender)}' {_UNSIGNED}, and is ignored"
        return False

    def _is_of_another(self, group: str | None) -> bool:
        if group is None or group == self._group:
            return False
        if len(self.others) < MOST_GROUPS:
            self.others.add(group[:_LONGEST])
        return True

    def _may_have_files(self, headers: Headers, head: Head | None) -> bool:
        """Whether an entry that cannot be read is this group's, and may have files or source offsets of files."""
        if head is not None:
            return head.kind not in (StartCommit, CommitToTable) or headers.hold_files
        if headers.group is None:  # version 0.1.0 wrote the source offsets alone
            return not headers.refusal and headers.has_coverage
        return headers.hold_files

    def _where(self, place: Place) -> str:
        return f"{self._log_name}, partition {place[0]}, offset {place[1]}"

    def _refuse(self, place: Place, reason: UndecodableError) -> None:
        sentence = (
            f"{self._where(place)}: an entry of this sink cannot be decoded"
            f" ({printable(str(reason), _LONGEST)}); its files would be missing from the tables:"
            " run the version of calving that wrote it, or stop all workers and run"
            " `calving recover FILE`"
        )
        if self._strict:
            raise DataLossError(sentence) from reason
        if len(self.unreadable) < _MOST:
            self.unreadable[place] = sentence

    def _skip(self, where: str, sender: bytes, why: str) -> None:
        name = _name(sender)
        if name not in self.undecodable and len(self.undecodable) >= _MOST:
            name = "any other"
        self.undecodable[name] += 1
        if self._logs and self.undecodable[name] == 1:
            log.warning(
                "%s: an entry of sender '%s' is skipped, as will be its others like it: it %s", where, name, why
            )


def _name(sender: bytes) -> str:
    return printable(sender.decode(errors="replace"), _LONGEST)
