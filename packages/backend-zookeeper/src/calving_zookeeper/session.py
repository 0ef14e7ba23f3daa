"""One member's connection to the state, the log and the election."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection
from dataclasses import replace

from kazoo.client import KazooClient
from kazoo.protocol.states import KazooState

from calving.backend.entries import beside_text, covered_text, partition_key, payloads
from calving.backend.interface import Cursor, Session, SinkIdentity
from calving.errors import FencedError, SilentError, StaleError, UnavailableError
from calving.model.events import Publication
from calving.model.membership import Claim
from calving.model.offsets import SourceOffsets, TopicPartition
from calving.source.claims import has_member
from calving.source.dead_letters import DeadLetterWriter
from calving_zookeeper.connection import Nodes, connect, disconnect, reaching
from calving_zookeeper.cursor import ZooKeeperCursor
from calving_zookeeper.options import ZooKeeperOptions
from calving_zookeeper.store import State, Store


class ZooKeeperSession(Session):
    def __init__(
        self,
        sink: SinkIdentity,
        options: ZooKeeperOptions,
        root: str,
        client: KazooClient,
        member_id: str,
        identity: str,
    ) -> None:
        self._sink, self._options, self._root, self._client = sink, options, root, client
        self._member_id, self._identity = member_id, identity
        self._store = Store(Nodes(client, options.timeout_ms / 1000), root)
        self._dead_letters = DeadLetterWriter(sink)
        self._prefix = f"m-{member_id}-"
        self._candidate: str | None = None
        self._leads = False
        self._stale = threading.Event()
        """Whether the candidates may have changed since they were listed."""
        self._stale.set()
        self._expired = threading.Event()
        self._connected = time.monotonic()
        """When the session was last seen connected."""
        self._closed = False
        client.add_listener(self._on_state)

    def lead(self, held: Collection[TopicPartition], every: Collection[TopicPartition]) -> bool:
        if self._expired.is_set():
            raise UnavailableError("ZooKeeper: the session has expired")
        if self._client.state != KazooState.CONNECTED:
            # The session may still live; whoever leads meanwhile is told by its expiry. But who cannot be told of
            # anything for long is of no use as a worker either, and the client would wait for ever.
            # The client has waited for an answer before, for up to two thirds of the session's time.
            if time.monotonic() - self._connected > self._options.session_ms / 4000:
                raise SilentError(f"ZooKeeper: no connection for {time.monotonic() - self._connected:.0f} s")
            return False
        self._connected = time.monotonic()
        if self._stale.is_set():
            self._stale.clear()  # before the look: its watch may fire before the answer is here
            try:
                with reaching():
                    self._leads = self._look()
            except BaseException:
                self._stale.set()
                raise
        return self._leads

    def committed(self, partitions: Collection[TopicPartition]) -> SourceOffsets:
        stored = self._current().positions
        return {tp: stored[partition_key(tp)] for tp in partitions if partition_key(tp) in stored}

    def topic_ids(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, str]:
        stored = self._current().topic_ids
        return {tp: stored[partition_key(tp)] for tp in partitions if partition_key(tp) in stored}

    def publish(self, publication: Publication, claim: Claim) -> None:
        if not has_member(claim):
            raise FencedError(f"the consumer of group '{self._sink.group}' is not a member")
        self._dead_letters.write(publication.dead_letters)
        events = payloads(self._sink.group, publication.events, self._options.max_message_bytes)

        def advance(state: State) -> State:
            self._check(state)
            for tp, move in publication.advances.items():
                stored = state.positions.get(partition_key(tp))
                if stored != move.start:
                    raise StaleError(f"{tp} is stored at {stored}, this publication starts at {move.start}")
            moved = {partition_key(tp): move.end for tp, move in publication.advances.items()}
            within = {partition_key(tp): identity for tp, identity in publication.identities.items()}
            return replace(state, positions={**state.positions, **moved}, topic_ids={**state.topic_ids, **within})

        beside = beside_text(self._sink.group, publication.events, events)
        self._store.write(advance, self._member_id, covered_text(publication), events, beside)

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

    def close(self) -> None:
        if not self._closed:
            self._closed = True
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
            # Of an earlier session of this process, which would lead until it has expired.
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
        """Called by the client's thread. A connection that is lost may come back; a session that expired does not."""
        self._stale.set()
        if state == KazooState.LOST:
            self._expired.set()


def _turn(candidate: str) -> str:
    """The number that ZooKeeper has put behind a candidate's name."""
    return candidate[-10:]
