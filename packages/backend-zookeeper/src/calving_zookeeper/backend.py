"""The backend on ZooKeeper: one ``multi`` for each publication, watches for the readers, ephemeral nodes for the
election.
"""

from __future__ import annotations

from contextlib import closing
from urllib.parse import quote

from pydantic import BaseModel

from calving.backend import Backend, Session, SinkIdentity, closing_on_error
from calving_zookeeper.connection import connect
from calving_zookeeper.options import ZooKeeperOptions
from calving_zookeeper.session import ZooKeeperSession
from calving_zookeeper.store import ZooKeeperStore


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
        with closing(connect(self._options)) as connection:
            ZooKeeperStore(connection, self._root).create()

    def open(self, member_id: str) -> Session:
        with closing_on_error(connect(self._options)) as connection:
            store = ZooKeeperStore(connection, self._root)
            store.create()
            return ZooKeeperSession(self._sink, self._options, store, member_id)
