"""One member's connection to the state, the log and the election."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import TypeVar

from kazoo.client import KazooClient
from kazoo.protocol.states import KazooState

from calving.backend import Cursor, Encoded, GroupSession, SinkIdentity, check_starts, partition_key
from calving.errors import FencedError, SilentError, UnavailableError
from calving.model.events import Publication
from calving.model.membership import Claim
from calving.model.offsets import SourceOffsets, TopicPartition
from calving_zookeeper.connection import Nodes, connect, disconnect, reaching
from calving_zookeeper.cursor import ZooKeeperCursor
from calving_zookeeper.options import ZooKeeperOptions
from calving_zookeeper.store import State, Store

V = TypeVar("V")


class ZooKeeperSession(GroupSession):
    def __init__(
        self,
        sink: SinkIdentity,
        options: ZooKeeperOptions,
        root: str,
        client: KazooClient,
        member_id: str,
        identity: str,
    ) -> None:
        super().__init__(sink, options)
        self._sink, self._options, self._root, self._client = sink, options, root, client
        self._member_id, self._identity = member_id, identity
        self._store = Store(Nodes(client, options.timeout_ms / 1000), root)
        self._prefix = f"m-{member_id}-"
        self._candidate: str | None = None
        self._leads = False
        self._stale = threading.Event()
        """Whether the candidates may have changed since they were listed."""
        self._stale.set()
        self._expired = threading.Event()
        self._connected = time.monotonic()
        """When the session was last seen connected."""
        client.add_listener(self._on_state)

    def lead(self, held: Collection[TopicPartition], every: Collection[TopicPartition]) -> bool:
        if self._expired.is_set():
            raise UnavailableError("ZooKeeper: the session has expired")
        if self._client.state != KazooState.CONNECTED:
            # The session may not have expired yet, and its expiry decides who leads. But a worker without answers is of
            # no use, and the client would wait for ever. The client waits for an answer for up to two thirds of the
            # session's timeout before it reports that the connection is lost.
            if time.monotonic() - self._connected > self._options.session_ms / 4000:
                raise SilentError(f"ZooKeeper: no connection for {time.monotonic() - self._connected:.0f} s")
            return False
        self._connected = time.monotonic()
        if self._stale.is_set():
            self._stale.clear()  # before the request: its watch may fire before the answer arrives
            try:
                with reaching():
                    self._leads = self._look()
            except BaseException:
                self._stale.set()
                raise
        return self._leads

    def committed(self, partitions: Collection[TopicPartition]) -> SourceOffsets:
        return _stored(self._current().positions, partitions)

    def topic_ids(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, str]:
        return _stored(self._current().topic_ids, partitions)

    def append(self, publication: Publication, encoded: Encoded, claim: Claim) -> None:
        moved = {partition_key(tp): advance.end for tp, advance in publication.advances.items()}
        within = {partition_key(tp): identity for tp, identity in publication.identities.items()}

        def advance(state: State) -> State:
            self._check(state)
            check_starts(publication, _stored(state.positions, publication.advances))
            return replace(state, positions={**state.positions, **moved}, topic_ids={**state.topic_ids, **within})

        self._store.write(advance, self._member_id, encoded)

    def follow(self, *, replay: bool) -> Cursor:
        return self._cursor(replay=replay)

    def watch(self) -> Cursor:
        return self._cursor(replay=False, watch=True)

    def _cursor(self, *, replay: bool, watch: bool = False) -> Cursor:
        client = connect(self._options)
        try:
            return ZooKeeperCursor(self._sink, self._options, self._root, client, replay=replay, watch=watch)
        except BaseException:
            disconnect(client)
            raise

    def release(self) -> None:
        disconnect(self._client)

    def _current(self) -> State:
        state, _ = self._store.state()
        self._check(state)
        return state

    def _check(self, state: State) -> None:
        if state.id != self._identity:
            raise FencedError(f"ZooKeeper: {self._root} was recreated")

    def _look(self) -> bool:
        """Whether this member is the first candidate; if not, watch the one before it, so that no polling is needed."""
        election, nodes = self._store.election_path, self._store.nodes
        if self._candidate is None:
            # This node belongs to an earlier session of this process, which would lead until it expires.
            for former in nodes.children(election):
                if former.startswith(self._prefix):
                    nodes.delete_if_there(f"{election}/{former}")
            made = nodes.create(f"{election}/{self._prefix}", ephemeral=True, sequence=True)
            self._candidate = made.rpartition("/")[2]
        candidates = sorted(nodes.children(election), key=_turn)
        place = candidates.index(self._candidate) if self._candidate in candidates else None
        if place is None:
            raise UnavailableError("ZooKeeper: the candidate's node is gone")
        if place == 0:
            return True
        if nodes.stat(f"{election}/{candidates[place - 1]}", self._look_again) is None:
            return self._look()
        return False

    def _look_again(self, event: object) -> None:
        self._stale.set()

    def _on_state(self, state: str) -> None:
        """Called by the client's thread. A lost connection may come back; an expired session does not."""
        self._stale.set()
        if state == KazooState.LOST:
            self._expired.set()


def _stored(values: Mapping[str, V], partitions: Iterable[TopicPartition]) -> dict[TopicPartition, V]:
    """The stored values of these partitions."""
    return {tp: values[partition_key(tp)] for tp in partitions if partition_key(tp) in values}


def _turn(candidate: str) -> str:
    """The sequence number that ZooKeeper appended to a candidate's name."""
    return candidate[-10:]
