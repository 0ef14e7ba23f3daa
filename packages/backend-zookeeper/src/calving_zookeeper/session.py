"""One member's connection to the state, the log and the election."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import TypeVar

from kazoo.exceptions import NoNodeError

from calving.backend import (
    Claim,
    Cursor,
    Encoded,
    GroupSession,
    Publication,
    SinkIdentity,
    SourceOffsets,
    TopicPartition,
    check_starts,
    closing_on_error,
    partition_key,
)
from calving.errors import SilentError, UnavailableError
from calving_zookeeper.connection import connect, reaching
from calving_zookeeper.cursor import ZooKeeperCursor
from calving_zookeeper.options import ZooKeeperOptions
from calving_zookeeper.store import StoredState, ZooKeeperStore

V = TypeVar("V")


class ZooKeeperSession(GroupSession):
    def __init__(self, sink: SinkIdentity, options: ZooKeeperOptions, store: ZooKeeperStore, member_id: str) -> None:
        super().__init__(sink, options)
        self._sink, self._options, self._member_id = sink, options, member_id
        self._store, self._connection = store, store.connection
        store.fence(store.state()[0].id)
        self._prefix = f"m-{member_id}-"
        self._candidate: str | None = None
        self._leads = False
        self._connected = time.monotonic()
        """When the session was last seen connected."""

    def lead(self, held: Collection[TopicPartition], every: Collection[TopicPartition]) -> bool:
        if not self._connection.is_up():
            # The session may not have expired yet, and its expiry decides who leads. But a worker without answers is of
            # no use, and the client would wait for ever. The client waits for an answer for up to two thirds of the
            # session's timeout before it reports that the connection is lost.
            if time.monotonic() - self._connected > self._options.session_ms / 4000:
                raise SilentError(f"ZooKeeper: no connection for {time.monotonic() - self._connected:.0f} s")
            return False
        self._connected = time.monotonic()
        if self._connection.stale.is_set():
            self._connection.stale.clear()  # before the request: its watch may fire before the answer arrives
            try:
                with reaching():
                    self._leads = self._look()
            except BaseException:
                self._connection.stale.set()
                raise
        return self._leads

    def committed(self, partitions: Collection[TopicPartition]) -> SourceOffsets:
        return _stored(self._store.state()[0].positions, partitions)

    def topic_ids(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, str]:
        return _stored(self._store.state()[0].topic_ids, partitions)

    def append(self, publication: Publication, encoded: Encoded, claim: Claim) -> None:
        moved = {partition_key(tp): advance.end for tp, advance in publication.advances.items()}
        within = {partition_key(tp): identity for tp, identity in publication.identities.items()}

        def advance(state: StoredState) -> StoredState:
            check_starts(publication, _stored(state.positions, publication.advances))
            return replace(state, positions={**state.positions, **moved}, topic_ids={**state.topic_ids, **within})

        self._store.write(advance, self._member_id, encoded)

    def follow(self, *, replay: bool) -> Cursor:
        return self._cursor(replay=replay)

    def watch(self) -> Cursor:
        return self._cursor(replay=False, watch=True)

    def _cursor(self, *, replay: bool, watch: bool = False) -> Cursor:
        with closing_on_error(connect(self._options)) as connection:
            store = ZooKeeperStore(connection, self._store.root)
            return ZooKeeperCursor(self._sink, self._options, store, replay=replay, watch=watch)

    def release(self) -> None:
        self._connection.close()

    def _look(self) -> bool:
        """Whether this member is the first candidate; if not, watch the one before it, so that no polling is needed."""
        election, connection = self._store.election_path, self._connection
        if self._candidate is None:
            # This node belongs to an earlier session of this process, which would lead until it expires.
            for former in connection.children(election):
                if former.startswith(self._prefix):
                    with contextlib.suppress(NoNodeError):
                        connection.delete(f"{election}/{former}")
            made = connection.create(f"{election}/{self._prefix}", ephemeral=True, sequence=True)
            self._candidate = made.rpartition("/")[2]
        candidates = sorted(connection.children(election), key=_turn)
        place = candidates.index(self._candidate) if self._candidate in candidates else None
        if place is None:
            raise UnavailableError("ZooKeeper: the candidate's node is gone")
        if place == 0:
            return True
        if connection.stat(f"{election}/{candidates[place - 1]}", connection.on_change) is None:
            return self._look()
        return False


def _stored(values: Mapping[str, V], partitions: Iterable[TopicPartition]) -> dict[TopicPartition, V]:
    """The stored values of these partitions."""
    return {tp: values[partition_key(tp)] for tp in partitions if partition_key(tp) in values}


def _turn(candidate: str) -> str:
    """The sequence number that ZooKeeper appended to a candidate's name."""
    return candidate[-10:]
