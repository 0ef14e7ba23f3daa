"""Readers of the log: woken by a watch, never polling."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import replace
from uuid import uuid4

from kazoo.exceptions import NoNodeError

from calving.backend import (
    BEFORE,
    ControlLog,
    ControlOffsets,
    Encoded,
    EntryCursor,
    Envelope,
    SinkIdentity,
    SourceOffsets,
    Topic,
    partition_key,
)
from calving.errors import ProtocolError, UnavailableError
from calving_zookeeper.connection import reaching
from calving_zookeeper.options import ZooKeeperOptions
from calving_zookeeper.store import StoredState, ZooKeeperStore

log = logging.getLogger(__name__)

_ORPHAN_SECONDS = 3_600.0


class ZooKeeperCursor(EntryCursor):
    def __init__(
        self, sink: SinkIdentity, options: ZooKeeperOptions, store: ZooKeeperStore, *, replay: bool, watch: bool = False
    ) -> None:
        super().__init__(sink, options, f"ZooKeeper {store.root}", replay=replay, watch=watch)
        self._store, self._connection = store, store.connection
        self._replays, self._audit_entries = replay, options.audit_entries
        # A replay may start in the middle of a publication. The publication then begins before the replay's start.
        self._first = replay
        self._names: deque[str] = deque()
        self._odd: set[str] = set()
        """Nodes that somebody else has made, and that were passed."""
        self._listed = False
        """Whether the publications were listed since the cursor was opened."""
        state = store.write(_next_epoch, self.sender) if replay else store.state()[0]
        start = self.start_of_replay(state.saved, state.next) if replay or watch else state.next
        if replay:
            store.fence(state.id, state.epoch)
            with reaching():
                store.sweep(_ORPHAN_SECONDS)
        self._next = self._before(start) if watch else start
        self.log = ControlLog(state.id, {0: start}, {0: state.next})

    def _before(self, start: int) -> int:
        """The offset of the publications before ``start`` from which on a watcher reads. Offsets are times, so they
        do not count entries.
        """
        with reaching():
            below = [name for name in self._store.names() if int(name) < start]
        return int(below[-BEFORE:][0]) if below else start

    @property
    def has_ended(self) -> bool:
        return self._next >= self.log.end[0] or (self._listed and not self._names)

    def read(self, timeout: float) -> Sequence[Envelope]:
        deadline = time.monotonic() + timeout
        while True:
            envelopes = self._take()
            left = deadline - time.monotonic()
            if envelopes or left <= 0:
                return envelopes
            self._connection.changed.wait(left)

    def save(self, position: ControlOffsets, encoded: Encoded, departed: Collection[Topic]) -> None:
        def saved(state: StoredState) -> StoredState:
            place = state.saved if 0 not in position else max(state.saved or 0, position[0])
            return replace(state, saved=place).without(departed)

        state = self._writable().write(saved, self.sender, encoded)
        if position and state.saved is not None:
            self._trim(state.saved)

    def rewind(self, positions: SourceOffsets) -> None:
        stored = {partition_key(tp): offset for tp, offset in positions.items()}
        identity = str(uuid4())

        def back(state: StoredState) -> StoredState:
            return replace(state, id=identity, saved=state.next, positions=stored, topic_ids={})

        self._writable().write(back, self.sender)

    def _writable(self) -> ZooKeeperStore:
        if not self._replays:
            raise ProtocolError("only a cursor that replays can write")
        return self._store

    def release(self) -> None:
        self._connection.close()

    def _take(self) -> list[Envelope]:
        if not self._connection.is_up():
            self._connection.changed.clear()
            return []
        if not self._names and self._connection.stale.is_set():
            self._look()
        envelopes: list[Envelope] = []
        while self._names and len(envelopes) < 500:
            with reaching():
                publication = self._store.publication(self._names[0])
            name = self._names.popleft()
            if publication is None:
                continue
            sender = publication.sender.encode()
            for offset, event in enumerate(publication.events, publication.offset):
                if offset >= self._next:
                    envelope = self.entries.envelope(0, offset, sender, event, publication.spans, publication.beside)
                    envelopes += [envelope] if envelope is not None else []
            if publication.odd:  # its number says nothing about the publications that come
                self._odd.add(name)
            else:
                self._next = max(self._next, publication.offset + len(publication.events))
        return envelopes

    def _look(self) -> None:
        """List the present publications."""
        # This comes before the request: its watch may fire before the answer arrives.
        self._connection.stale.clear()
        self._connection.changed.clear()
        with reaching():
            try:
                names = self._store.names(self._connection.on_change)
            except NoNodeError as error:
                raise UnavailableError(f"ZooKeeper has no {self._store.log_path}: the store was emptied") from error
        self._names.extend(n for n in names if (int(n) >= self._next or self._first) and n not in self._odd)
        self._first, self._listed = False, True

    def _trim(self, saved: int) -> None:
        """Trim publications whose entries are all committed, except the last ones. A failure is repaired next time."""
        try:
            with reaching():
                names = self._store.names()
                # The last publication that begins below the saved position may extend beyond it.
                below = [name for name in names if int(name) < saved][:-1]
                self._store.trim(below[: max(0, len(below) - self._audit_entries)])
        except UnavailableError as error:
            log.info("the log was not trimmed: %s", error)


def _next_epoch(state: StoredState) -> StoredState:
    return replace(state, epoch=state.epoch + 1)
