"""How a Hive catalog reaches its metastore: from several threads, and with commits that the metastore itself checks."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from types import TracebackType
from typing import Any
from urllib.parse import urlparse

from pyiceberg.catalog.hive import HIVE_KERBEROS_AUTH, HIVE_KERBEROS_SERVICE_NAME, _HiveClient
from pyiceberg.utils.properties import property_as_bool
from thrift.transport import TSocket, TTransport

ANSWER_SECONDS = 60.0
"""The time limit for an answer. Thrift sets no timeout, so a silent metastore would block the coordinator for ever."""


class MetastoreConnections:
    """Replaces the catalog's client: opens a connection for each use, to the first metastore of ``uri`` that answers.

    pyiceberg's client has only one connection. Threads would read each other's answers from it, and close it while
    others use it.
    """

    def __init__(self, properties: Mapping[str, str]) -> None:
        self._uris = properties["uri"].split(",")
        self._who = (
            properties.get("ugi"),
            property_as_bool(dict(properties), HIVE_KERBEROS_AUTH, False),
            properties.get(HIVE_KERBEROS_SERVICE_NAME, "hive"),
        )
        self._mine = threading.local()

    def __enter__(self) -> Any:
        for uri in self._uris:
            connection = _Connection(uri, *self._who)
            try:
                client = connection.__enter__()
            except TTransport.TTransportException:
                if uri == self._uris[-1]:
                    raise
            else:
                self._mine.connection = connection
                return client
        raise AssertionError("unreachable")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._mine.connection.__exit__(kind, error, trace)


class _Connection(_HiveClient):
    def _init_thrift_transport(self) -> Any:
        url = urlparse(self._uri)
        socket = TSocket.TSocket(url.hostname, url.port)
        socket.setTimeout(ANSWER_SECONDS * 1000)
        if self._kerberos_auth:
            return TTransport.TSaslClientTransport(socket, host=url.hostname, service=self._kerberos_service_name)
        return TTransport.TBufferedTransport(socket)

    def _client(self) -> Any:
        client: Any = super()._client()
        alter = client.alter_table_with_environment_context

        def checked(dbname: str, tbl_name: str, new_tbl: Any, environment_context: Any) -> None:
            """Refuse the commit if the table's metadata is not the one that the commit read: the commit's lock may have
            expired.
            """
            before = new_tbl.parameters.get("previous_metadata_location")
            if before is not None:
                environment_context.properties |= {
                    "expected_parameter_key": "metadata_location",
                    "expected_parameter_value": before,
                }
            alter(dbname, tbl_name, new_tbl, environment_context)

        client.alter_table_with_environment_context = checked
        return client
