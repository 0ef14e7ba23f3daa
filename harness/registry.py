"""A schema registry: a real HTTP server that speaks the REST paths that converters use, and is no more able than the
poorest real one that they work with: what is empty is left out, and a Protobuf schema is text unless it is asked for in its serialized form.
"""

from __future__ import annotations

import base64
import json
import re
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from typing import Any

import fastavro

from calving.converters import schemas


class SchemaRegistry:
    """Schemas by id and by subject, as Confluent's registry serves them."""

    def __init__(self) -> None:
        self.url = ""
        self.requests: list[str] = []
        self.logins: list[str | None] = []
        """The header Authorization of each request."""
        self.broken = False
        self.refused: tuple[int, dict[str, Any]] | None = None
        """The answer to every request, unless it is empty."""
        self.serializes = True
        """Whether it knows the format ``serialized``. Confluent's knows it everywhere from 7.8 on."""
        self._schemas: list[dict[str, Any]] = []
        self._subjects: dict[str, list[int]] = {}

    def register(
        self, subject: str, schema: str, kind: str = "AVRO", references: list[dict[str, Any]] | None = None
    ) -> int:
        """The schema's id. A Protobuf schema is given in its serialized form, base64."""
        self._schemas.append({"schema": schema, "schemaType": kind, "references": references or []})
        self._subjects.setdefault(subject, []).append(len(self._schemas))
        return len(self._schemas)

    def answer(self, path: str) -> tuple[int, dict[str, Any]]:
        self.requests.append(path)
        if self.refused is not None:
            return self.refused
        if self.broken:
            return 503, {"error_code": 50301, "message": "down"}
        if match := re.fullmatch(r"/schemas/ids/(\d+)(\?.*)?", path):
            number = int(match.group(1))
            if 0 < number <= len(self._schemas):
                return 200, self._shown(number, match.group(2))
            return 404, {"error_code": 40403, "message": "Schema not found"}
        if match := re.fullmatch(r"/subjects/([^/]+)/versions/(\d+)(\?.*)?", path):
            subject, version = match.group(1), int(match.group(2))
            ids = self._subjects.get(subject, [])
            if 0 < version <= len(ids):
                number = ids[version - 1]
                return 200, {
                    "subject": subject,
                    "version": version,
                    "id": number,
                    **self._shown(number, match.group(3)),
                }
        return 404, {"error_code": 40401, "message": f"{path} not found"}

    def accept(self, path: str, content: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """As a serializer registers its schema."""
        self.requests.append(path)
        if match := re.fullmatch(r"/subjects/([^/]+)/versions(\?.*)?", path):
            kind = content.get("schemaType", "AVRO")
            return 200, {"id": self.register(match.group(1), content["schema"], kind, content.get("references"))}
        return 404, {"error_code": 404, "message": f"{path} not found"}

    def _shown(self, number: int, query: str | None) -> dict[str, Any]:
        """A schema as the registry answers with it: without what is empty, in the format that it is asked for."""
        schema = {name: value for name, value in self._schemas[number - 1].items() if value and value != "AVRO"}
        asked = "format=serialized" in (query or "")
        if schema.get("schemaType") == "PROTOBUF" and not (asked and self.serializes):
            schema["schema"] = 'syntax = "proto3";\n\nmessage Text {}\n'
        return schema


@contextmanager
def serving(port: int = 0) -> Iterator[SchemaRegistry]:
    """A registry that runs. ``port``: 0 takes a free one."""
    # A port may have been that of a registry before, whose client still knows other schemas under these ids.
    schemas._CLIENTS.clear()
    registry = SchemaRegistry()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            registry.logins.append(self.headers["Authorization"])
            self._send(*registry.answer(self.path))

        def do_POST(self) -> None:
            content = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self._send(*registry.accept(self.path, content))

        def _send(self, status: int, body: dict[str, Any]) -> None:
            text = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    registry.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield registry
    finally:
        server.shutdown()
        thread.join()


def framed(number: int, body: bytes) -> bytes:
    return struct.pack(">bI", 0, number) + body


def avro(number: int, schema: Any, value: Any, named: dict[str, Any] | None = None) -> bytes:
    out = BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema, named_schemas=named or {}, _force=True), value)
    return framed(number, out.getvalue())


def serialized(file: Any) -> str:
    return base64.b64encode(file.SerializeToString()).decode()
