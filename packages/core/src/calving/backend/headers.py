"""The headers of an entry of the control log. Anybody may write into the log, so nothing in them is trusted. With a
secret that the workers of a sink share, entries are signed, and nobody else can write any.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, cast

from calving.model.events import (
    NOTHING_ATTACHED,
    Attachment,
    DataComplete,
    DataWritten,
    Envelope,
    Event,
    Leader,
    Parked,
    Place,
    TableId,
    TargetState,
    WorkerEnd,
)
from calving.model.forms import OLDEST, StoredForm, is_version
from calving.model.marks import TableMark
from calving.model.members import MOST_KEYS, MOST_TOLD, Member
from calving.model.offsets import decode_coverage, decode_covered, decode_places, decode_settled, is_moment
from calving.wire.codec import UndecodableError

_LONGEST = 500
"""The longest accepted name or address of another process."""
_LARGEST = 2**63 - 1
_MOST_LEVELS = 10
_SIGNATURE, _EVENTS = "signature", "events"


@dataclass(frozen=True, slots=True)
class Signer:
    """Signs and checks entries with HMAC-SHA256. A signature holds for the events of one publication with their two
    headers, in one control topic and group. It does not hold for the place in the log and the name of the sender.

    ``old``: a second secret, whose signatures are right, too.
    """

    secret: bytes = field(repr=False)
    control_topic: str
    group: str
    old: bytes | None = field(default=None, repr=False)

    def signed(self, events: Sequence[bytes], coverage: bytes, beside: bytes) -> bytes:
        """The second header of these events, with their digests and the signature."""
        said = {**json.loads(beside), _EVENTS: [hashlib.sha256(event).hexdigest() for event in events]}
        signature = self._signature(self.secret, coverage, said)
        return json.dumps({**said, _SIGNATURE: signature}, separators=(",", ":")).encode()

    def verifies(self, event: bytes, coverage: bytes, beside: Mapping[str, Any]) -> bool:
        """Whether these, which may be anybody's, are an entry of this sink: an event, its first header, and the second
        one as JSON.
        """
        try:
            said = {name: value for name, value in beside.items() if name != _SIGNATURE}
            secrets = [self.secret] if self.old is None else [self.secret, self.old]
            right = [self._signature(secret, coverage, said).encode() for secret in secrets]
            is_right = any(hmac.compare_digest(each, beside[_SIGNATURE].encode()) for each in right)
            return is_right and hashlib.sha256(event).hexdigest() in said[_EVENTS]
        except Exception:  # somebody else's bytes
            return False

    def _signature(self, secret: bytes, coverage: bytes, said: Mapping[str, Any]) -> str:
        scope = [self.control_topic, self.group, coverage.decode("latin-1"), said]
        text = json.dumps(scope, separators=(",", ":"), sort_keys=True)
        return hmac.new(secret, text.encode(), hashlib.sha256).hexdigest()


class Headers(NamedTuple):
    """The two headers of an entry: the source offsets, as text, and what is written beside an event.

    ``refusal``: why the second header cannot be read; then ``beside`` is empty.
    """

    coverage: bytes
    beside: Mapping[str, Any]
    refusal: str = ""

    @staticmethod
    def of(coverage: bytes | None, beside: bytes | None) -> Headers:
        """The headers in these bytes; None for a header that the entry does not have."""
        try:
            said = json.loads(beside) if beside else {}
        except (ValueError, RecursionError) as error:
            return Headers(coverage or b"", {}, f"its header is no JSON: {type(error).__name__}")
        if not isinstance(said, dict):
            return Headers(coverage or b"", {}, "its header is no JSON object")
        return Headers(coverage or b"", said)

    @property
    def group(self) -> str | None:
        """The group of the sender; None if the headers do not tell it."""
        group = self.beside.get("group")
        return group if isinstance(group, str) and len(group) <= _LONGEST else None

    @property
    def form(self) -> StoredForm:
        """The form that the sender names; the oldest if it names none."""
        form = self.beside.get("form")
        return _form(form) if _is_form(form) else OLDEST

    @property
    def has_coverage(self) -> bool:
        """Whether the entry has the header that only entries of calving have, with source offsets in it."""
        try:
            return bool(decode_covered(self.coverage.decode())[0]) if self.coverage else False
        except Exception:  # somebody else's bytes
            return False

    @property
    def hold_files(self) -> bool:
        """Whether the entry's event, if it cannot be read, may have files, or the offsets of files."""
        return bool(self.coverage) or "parked" in self.beside

    def envelope(self, place: Place, event: Event, sender: str = "") -> Envelope:
        """The event of this sender, with its headers.

        :raises UndecodableError: a header is not what a calving of this version or an earlier one writes.
        """
        if self.refusal:
            raise UndecodableError(self.refusal)
        try:
            text = self.coverage.decode() if self.coverage else "{}"
            match event:
                case DataWritten():
                    covered, restarted = decode_covered(text)
                    return Envelope(
                        *place,
                        event,
                        covered,
                        attached=self._written_in(),
                        restarted=restarted,
                        writer=self._version(),
                        branch=self._branch(event.table.identifier),
                        ordered=event.table.identifier in map(_table, self.beside.get("ordered", ())),
                        sender=sender,
                    )
                case DataComplete():
                    covered, restarted = decode_covered(text)
                    end = _end(self.beside.get("end"))
                    paused = _moment(self.beside.get("paused"))
                    return Envelope(
                        *place,
                        event,
                        covered,
                        self._parts(),
                        attached=self._written_in(),
                        restarted=restarted,
                        end=end,
                        paused_ms=paused,
                        member=_member(self.beside.get("member")),
                        wanted=self.beside.get("wanted") is True,
                        sender=sender,
                    )
            return Envelope(*place, event, attached=_attached(text, self.beside))
        except Exception as error:  # bytes from the network can fail a decoder in any way
            raise UndecodableError(f"its headers cannot be read: {type(error).__name__}: {error}") from error

    def _written_in(self) -> Attachment:
        """What stands beside a worker's event: its form, if later versions have written it."""
        form = self.beside.get("form")
        return NOTHING_ATTACHED if form is None else Attachment(form=_form(form))

    def _version(self) -> str | None:
        version = self.beside.get("version")
        return version if isinstance(version, str) else None

    def _branch(self, table: TableId) -> str | None:
        if "branch" not in self.beside:
            return None
        others = {_table(levels): _text(branch) for *levels, branch in self.beside.get("branches", ())}
        return others.get(table, _text(self.beside["branch"]))

    def _parts(self) -> int | None:
        parts = self.beside.get("parts")
        return None if parts is None else _number(parts)


def _attached(text: str, said: Mapping[str, Any]) -> Attachment:
    settled, restarted = decode_settled(text)
    marks = _marks(said)
    parked = {
        _table(table): Parked(_text(last), _number(entries), decode_coverage(_text(waiting)))
        for *table, last, entries, waiting in said.get("parked", ())
    }
    restarts = decode_places(_text(said.get("restarts", "{}")))
    released = frozenset((_number(p), _number(o)) for p, o in said.get("released", ()))
    read = _offsets(said.get("read", ()))
    return Attachment(
        settled=settled,
        marks=marks,
        parked=parked,
        released=released,
        leader=_leader(said.get("leader")),
        restarted=restarted,
        restarts=restarts,
        form=_form(said.get("form", OLDEST)),
        members=_members(said.get("members")),
        read=read,
        unanswered=_number(said.get("unanswered", 0)),
        state=TargetState(said["state"]) if said.get("state") in [*TargetState] else None,
    )


def _marks(said: Mapping[str, Any]) -> dict[TableId, TableMark]:
    tables = said.get("tables", ())
    controls = [None if each is None else _offsets(each) for each in said.get("controls", [None] * len(tables))]
    return {
        _table(table): TableMark(_text(uuid), _number(last), control)
        for (*table, uuid, last), control in zip(tables, controls, strict=True)
    }


def _offsets(said: Iterable[Sequence[object]]) -> dict[int, int]:
    return {_number(partition): _number(offset) for partition, offset in said}


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"text was expected, not {type(value).__name__}")
    return value


def _number(value: object) -> int:
    if type(value) is not int or not 0 <= value <= _LARGEST:
        raise TypeError(f"a number of 64 bits was expected, not {type(value).__name__}")
    return value


def _table(levels: list[object]) -> TableId:
    if not levels:
        raise ValueError("a table without a name")
    return tuple(_text(level) for level in levels)


def _leader(said: object) -> Leader | None:
    """A leader as another process wrote it; None unless it is safe to show: short text, and an http address."""
    if not isinstance(said, list) or len(said) != len(Leader._fields) or not all(map(_is_short, said)):
        return None
    member, host, url = said
    return Leader(member, host, url if url.startswith(("http://", "https://")) else "")


def _end(said: object) -> WorkerEnd | None:
    """The end of a worker as another process wrote it; None unless it is safe to show: short texts, and a moment."""
    if not isinstance(said, list) or len(said) != len(WorkerEnd._fields):
        return None
    version, at_ms, *texts = said
    known = _moment(at_ms)
    return WorkerEnd(version, known, *texts) if known is not None and all(map(_is_short, (version, *texts))) else None


def _member(said: object) -> Member | None:
    """A worker as it describes itself; None unless it does. What is not safe to show is left out."""
    if not isinstance(said, dict):
        return None
    version, settings, form = said.get("version"), said.get("settings"), said.get("form", OLDEST)
    if not _is_short(version) or not _is_short(settings) or not _is_form(form):
        return None
    host, file, keys, level = said.get("host", ""), said.get("file", ""), said.get("keys", {}), said.get("level", 0)
    is_safe = isinstance(keys, dict) and len(keys) <= MOST_KEYS and type(level) is int and 0 <= level < _MOST_LEVELS
    member = Member(_text(version), _text(settings), _form(form))
    process = said.get("id", "")
    if not is_safe or not all(map(_is_short, (host, file, process, *keys, *keys.values()))):
        return member
    return replace(member, host=host, file=file, keys=keys, level=level, id=process)


def _members(said: object) -> tuple[Member, ...]:
    """The workers that a coordinator describes. What is not safe to show is left out."""
    known = map(_member, said[:MOST_TOLD]) if isinstance(said, list) else ()
    return tuple(member for member in known if member is not None)


def _form(said: object) -> StoredForm:
    """:raises TypeError: it is no form."""
    if not _is_form(said):
        raise TypeError("a form has a number and a version")
    return StoredForm(*cast("tuple[int, str]", said))


def _is_form(said: object) -> bool:
    return (
        isinstance(said, list | tuple)
        and len(said) == len(StoredForm._fields)
        and type(said[0]) is int
        and 0 <= said[0] <= _LARGEST
        and is_version(said[1])
    )


def _moment(said: object) -> int | None:
    return said if type(said) is int and is_moment(said) else None


def _is_short(text: object) -> bool:
    return isinstance(text, str) and len(text) <= _LONGEST and text.isprintable()
