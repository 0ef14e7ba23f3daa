"""A producer of records that confluent-kafka does not send: it wants names of headers to be text."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

from calving.source import kafka_columns

_PRODUCER, _COPY = 0, 2
_END, _TOPIC, _PARTITION, _VALUE, _KEY, _FLAGS, _TIMESTAMP, _HEADER = 0, 1, 3, 4, 5, 7, 8, 9
"""Kinds of arguments, as librdkafka's header numbers them."""


class RawProducer:
    """A producer of the librdkafka that the process has loaded. Names of headers are bytes."""

    def __init__(self, servers: str) -> None:
        path = kafka_columns._library()
        assert path is not None
        self._api = api = ctypes.CDLL(path)
        for name in ("rd_kafka_conf_new", "rd_kafka_new"):
            getattr(api, name).restype = ctypes.c_void_p
        conf, said = ctypes.c_void_p(api.rd_kafka_conf_new()), ctypes.create_string_buffer(512)
        for key, given in (
            (b"bootstrap.servers", servers.encode()),
            (b"log_level", b"0"),
            (b"enable.idempotence", b"true"),
        ):
            assert api.rd_kafka_conf_set(conf, key, given, said, 512) == 0, said.value
        self._client = ctypes.c_void_p(api.rd_kafka_new(_PRODUCER, conf, said, 512))
        assert self._client, said.value

    def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        partition: int = 0,
        timestamp: int = 0,
        headers: Sequence[tuple[bytes, bytes | None]] = (),
    ) -> None:
        """``timestamp`` 0: the time now."""
        size, word = ctypes.c_size_t, ctypes.c_int
        parts: list[object] = [
            word(_TOPIC),
            topic.encode(),
            word(_PARTITION),
            word(partition),
            word(_FLAGS),
            word(_COPY),
        ]
        parts += [word(_VALUE), value, size(len(value or b"")), word(_KEY), key, size(len(key or b""))]
        parts += [word(_TIMESTAMP), ctypes.c_int64(timestamp)]
        for name, content in headers:
            parts += [word(_HEADER), name, content, ctypes.c_ssize_t(len(content or b""))]
        assert self._api.rd_kafka_producev(self._client, *parts, word(_END)) == 0
        assert self._api.rd_kafka_flush(self._client, 60_000) == 0

    def close(self) -> None:
        self._api.rd_kafka_destroy(self._client)
