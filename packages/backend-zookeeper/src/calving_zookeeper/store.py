"""The nodes of one sink.

``state`` holds, as JSON, all values that change together: identity, epoch, next offset, saved position, source
positions with their topics' identities. Every write is one ``multi``: it replaces the state under the version that was
read, and creates one node with the events. So if two writes are concurrent, one fails; and no reader sees a state
without its events (B1, B2).

``log/<offset>`` is one publication: a header, and the publication's events. If the events exceed the size of a request,
the node holds the names of nodes under ``blobs`` instead, which were written before.
"""

from __future__ import annotations

import json
import re
import struct
import time
import uuid
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Annotated

from kazoo.exceptions import (
    BadVersionError,
    ConnectionClosedError,
    ConnectionLoss,
    NodeExistsError,
    NoNodeError,
    OperationTimeoutError,
    RolledBackError,
    RuntimeInconsistency,
    SessionExpiredError,
)
from kazoo.handlers.threading import KazooTimeoutError
from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, ValidationError

from calving.backend import Encoded, Topic, stored_in
from calving.errors import FencedError, OutcomeUnknownError, UnavailableError
from calving_zookeeper.connection import Connection, reaching, refused

_REQUEST_BYTES = 900_000
"""Largest request, bytes; ZooKeeper's own limit (jute.maxbuffer) is 1 MiB."""
_TRIES = 50
_LOST = (ConnectionLoss, ConnectionClosedError, SessionExpiredError, OperationTimeoutError, KazooTimeoutError)
_HEADER = struct.Struct(">I")
_NAME = re.compile("[0-9]{19}")
_NOTHING = Encoded([], b"", b"")


@dataclass(frozen=True, slots=True)
class StoredState:
    """All values that change together. ``positions`` and ``topic_ids`` are by ``topic:partition``."""

    id: str
    next: int = 1
    epoch: int = 0
    saved: int | None = None
    positions: dict[str, int] = field(default_factory=dict)
    topic_ids: dict[str, str] = field(default_factory=dict)

    def without(self, departed: Collection[Topic]) -> StoredState:
        """The state without positions in these topics. Each topic is named ``within`` its identity."""
        away = {
            key
            for key in (self.positions if departed else ())
            if stored_in(key.rpartition(":")[0], self.topic_ids.get(key, "")) in departed
        }
        return replace(
            self,
            positions={key: offset for key, offset in self.positions.items() if key not in away},
            topic_ids={key: identity for key, identity in self.topic_ids.items() if key not in away},
        )

    def to_bytes(self) -> bytes:
        return json.dumps(asdict(self), separators=(",", ":")).encode()

    @staticmethod
    def of(raw: bytes) -> StoredState:
        return StoredState(**json.loads(raw))


@dataclass(frozen=True, slots=True)
class LogNode:
    """The events of one node of the log, the first at ``offset``."""

    offset: int
    sender: str
    spans: bytes
    beside: bytes
    events: tuple[bytes, ...]
    odd: bool = False
    """Whether the node is not one of calving's."""


class _Header(BaseModel):
    """The first part of a node of the log."""

    model_config = ConfigDict(strict=True)

    sender: str
    spans: str
    beside: str = ""
    sizes: list[NonNegativeInt]
    blobs: list[Annotated[str, Field(pattern=r"^[\w-]+$")]]


class ZooKeeperStore:
    """Reads and writes the nodes of one sink."""

    def __init__(self, connection: Connection, root: str) -> None:
        self.connection, self.root = connection, root
        self._identity: str | None = None
        self._epoch: int | None = None
        self.state_path, self.log_path = f"{root}/state", f"{root}/log"
        self.blobs_path, self.election_path = f"{root}/blobs", f"{root}/election"

    def create(self) -> None:
        """Create the missing nodes."""
        with reaching():
            for path in (self.log_path, self.blobs_path, self.election_path):
                self.connection.ensure(path)
            try:
                self.connection.create(self.state_path, StoredState(str(uuid.uuid4())).to_bytes())
            except NodeExistsError:
                return

    def fence(self, identity: str, epoch: int | None = None) -> None:
        """From now on, refuse a state with another identity, and for a coordinator also one with another epoch."""
        self._identity, self._epoch = identity, epoch

    def state(self) -> tuple[StoredState, int]:
        """The state and its version, not older than any earlier answer to any client.

        :raises UnavailableError: no answer. :raises FencedError: the store was emptied or recreated, or a newer
            coordinator exists.
        """
        with reaching():
            try:
                raw, stat = self.connection.latest(self.state_path)
            except NoNodeError as error:
                raise FencedError(f"ZooKeeper has no {self.state_path}: the store was emptied") from error
        state = StoredState.of(raw)
        if self._identity not in (None, state.id):
            raise FencedError(f"ZooKeeper: {self.root} was recreated")
        if self._epoch not in (None, state.epoch):
            raise FencedError(f"coordinator {state.epoch} has followed coordinator {self._epoch}")
        return state, stat.version

    def write(
        self, change: Callable[[StoredState], StoredState], sender: str, encoded: Encoded = _NOTHING
    ) -> StoredState:
        """Append events as one publication and ``change`` the state, both or neither.

        ``change`` raises an error if the state does not allow the write. If another write came first, ``change`` is
        called again.

        :raises FencedError, UnavailableError: nothing was written. :raises OutcomeUnknownError: it may have been.
        """
        marker = uuid.uuid4().hex
        events = encoded.events
        blobs: list[str] = []
        for _ in range(_TRIES):
            before, version = self.state()
            after = change(before)
            offset = max(before.next, time.time_ns() // 1000)
            if events:
                after = replace(after, next=offset + len(events))
                if not blobs:
                    content, blobs = self._packed(marker, sender, encoded)
            try:
                created = (self._entry(offset), content) if events else None
                results = self.connection.replace_and_create(self.state_path, after.to_bytes(), version, created)
            except _LOST as error:
                if self._landed(version, offset if events else None, marker, error):
                    return after
                raise UnavailableError(f"ZooKeeper: {type(error).__name__}: nothing was written") from error
            failed = [r for r in results if isinstance(r, Exception)]
            if not failed:
                return after
            if any(isinstance(r, BadVersionError | NodeExistsError) for r in failed):
                continue
            worst = next((r for r in failed if not isinstance(r, RolledBackError | RuntimeInconsistency)), failed[0])
            raise refused(worst)
        raise UnavailableError(f"ZooKeeper: other writers were faster {_TRIES} times: nothing was written")

    def names(self, on_change: Callable[[object], None] | None = None) -> list[str]:
        """The names of the publications, in their order. ``on_change`` is called once, at the next change.

        :raises NoNodeError: there is no log.
        """
        names = self.connection.children(self.log_path, on_change)
        return [name for name in names if _NAME.fullmatch(name)]  # others may create nodes with other names

    def publication(self, name: str) -> LogNode | None:
        """A publication of the log; None if it was trimmed meanwhile. A node of another form is one event, which cannot
        be decoded.
        """
        try:
            header, body = self._entry_of(name)
        except NoNodeError:
            return None
        if header is None:
            return LogNode(int(name), "", b"", b"", (body,), odd=True)
        try:
            body += b"".join(self.connection.get(f"{self.blobs_path}/{blob}")[0] for blob in header.blobs)
        except NoNodeError:
            if self.connection.stat(f"{self.log_path}/{name}") is None:
                return None
            body = b""  # a blob is gone, and its publication is not: its events cannot be decoded
        events, at = [], 0
        for length in header.sizes:
            events.append(body[at : at + length])
            at += length
        return LogNode(int(name), header.sender, header.spans.encode(), header.beside.encode(), tuple(events))

    def trim(self, names: Sequence[str]) -> None:
        """Delete publications and their blobs. The next call repeats failed deletions."""
        for name in names:
            try:
                header, _ = self._entry_of(name)
                self.connection.delete(f"{self.log_path}/{name}")
                for blob in header.blobs if header is not None else ():
                    self.connection.delete(f"{self.blobs_path}/{blob}")
            except NoNodeError:
                continue

    def sweep(self, older_than_seconds: float) -> None:
        """Delete blobs without a publication: their writers died before they published."""
        orphans = set(self.connection.children(self.blobs_path))
        if not orphans:
            return
        for name in self.names():
            header, _ = self._entry_of(name)
            orphans -= set(header.blobs if header is not None else ())
        for blob in orphans:
            stat = self.connection.stat(f"{self.blobs_path}/{blob}")
            if stat is not None and time.time() - stat.ctime / 1000 > older_than_seconds:
                self.connection.delete(f"{self.blobs_path}/{blob}")

    def _entry_of(self, name: str) -> tuple[_Header | None, bytes]:
        """Header and content of a node; no header if somebody else has made it."""
        raw, _ = self.connection.get(f"{self.log_path}/{name}")
        try:
            end = _HEADER.size + _HEADER.unpack_from(raw)[0]
            return _Header.model_validate_json(raw[_HEADER.size : end]), raw[end:]
        except (struct.error, ValidationError):
            return None, raw

    def _entry(self, offset: int) -> str:
        return f"{self.log_path}/{offset:019d}"

    def _packed(self, marker: str, sender: str, encoded: Encoded) -> tuple[bytes, list[str]]:
        """The content of a log node, and the blobs that were written for it."""
        body = b"".join(encoded.events)
        said = {"spans": encoded.coverage.decode(), "beside": encoded.beside.decode()}
        header = {"marker": marker, "sender": sender, **said, "sizes": [len(e) for e in encoded.events]}
        blobs: list[str] = []
        if len(body) > _REQUEST_BYTES // 2:
            with reaching():
                for i, start in enumerate(range(0, len(body), _REQUEST_BYTES)):
                    blobs.append(f"{marker}-{i:05d}")
                    self.connection.create(f"{self.blobs_path}/{blobs[-1]}", body[start : start + _REQUEST_BYTES])
            body = b""
        text = json.dumps({**header, "blobs": blobs}, separators=(",", ":")).encode()
        return _HEADER.pack(len(text)) + text + body, blobs

    def _landed(self, version: int, offset: int | None, marker: str, cause: Exception) -> bool:
        """Whether a write whose answer was lost was made.

        When a session moves to another server, no request of the session stays behind. So a write that a sync does not
        show will not be made later.
        """
        deadline = time.monotonic() + self.connection.timeout
        while time.monotonic() < deadline:
            try:
                _, stat = self.connection.latest(self.state_path)
                if stat.version == version:
                    return False
                if offset is not None:
                    try:
                        raw, _ = self.connection.get(self._entry(offset))
                    except NoNodeError:
                        return False
                    return marker.encode() in raw[:200]
                break
            except SessionExpiredError:
                break
            except _LOST:
                time.sleep(0.2)
            except NoNodeError:
                break
        raise OutcomeUnknownError(f"ZooKeeper: {type(cause).__name__}: it is unknown whether it was written") from cause
