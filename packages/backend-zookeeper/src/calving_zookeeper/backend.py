"""The backend on ZooKeeper: one ``multi`` for each publication, watches for the readers, ephemeral nodes for the
election.
"""

from __future__ import annotations

from urllib.parse import quote

from pydantic import BaseModel

from calving.backend import Backend, Session, SinkIdentity
from calving_zookeeper.connection import Nodes, connect, disconnect
from calving_zookeeper.options import ZooKeeperOptions
from calving_zookeeper.session import ZooKeeperSession
from calving_zookeeper.store import Store


class ZooKeeperBackend(Backend):
    name = "zookeeper"
    settings = ZooKeeperOptions
    mirrors = True

    def __init__(self, sink: SinkIdentity, settings: BaseModel) -> None:
        self._sink = sink
        self._options = ZooKeeperOptions.model_validate(settings.model_dump(by_alias=True))
        parts = (quote(part, safe="") for part in (sink.control_topic, sink.group))
        self._root = "/".join((self._options.root.rstrip("/"), *parts))

    def provision(self) -> None:
        client = connect(self._options)
        try:
            Store(Nodes(client, self._options.timeout_ms / 1000), self._root).create()
        finally:
            disconnect(client)

    def open(self, member_id: str) -> Session:
        client = connect(self._options)
        try:
            store = Store(Nodes(client, self._options.timeout_ms / 1000), self._root)
            store.create()
            state, _ = store.state()
        except BaseException:
            disconnect(client)
            raise
        return ZooKeeperSession(self._sink, self._options, self._root, client, member_id, state.id)
