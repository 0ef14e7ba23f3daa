"""The real Java classes, asked over pipes."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from calving.host import java
from calving.services.maven import Artifact, jars

_KAFKA, _ICEBERG = "3.9.2", "1.12.0"
_JARS = [
    Artifact("org.apache.iceberg", "iceberg-kafka-connect", _ICEBERG),
    Artifact("org.apache.iceberg", "iceberg-kafka-connect-transforms", _ICEBERG),
    Artifact("org.apache.kafka", "connect-transforms", _KAFKA),
    Artifact("org.apache.kafka", "connect-json", _KAFKA),
    Artifact("org.apache.kafka", "connect-api", _KAFKA),
    Artifact("org.slf4j", "slf4j-nop", "2.0.16"),
]
Answer = Any
"""The result for a record: its columns, ``dropped``, or ``error`` with a reason."""


@dataclass(frozen=True, slots=True)
class Message:
    """A record as JSON text: with ``typed``, key and value are Connect's envelopes."""

    value: str | None
    typed: bool = False
    key: str | None = None
    timestamp: int | None = 1_704_196_800_123
    offset: int = 7
    topic: str = "db.orders"
    partition: int = 3


class Java:
    """One JVM for all questions."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def transform(self, kind: str, options: Mapping[str, str], messages: Sequence[Message]) -> list[Answer]:
        return self._ask(messages, transform=kind, options=options)

    def convert(self, messages: Sequence[Message]) -> list[Answer]:
        """Values as JsonConverter gives them."""
        return self._ask(messages)

    def write(self, table: Mapping[str, Any], messages: Sequence[Message]) -> list[Answer]:
        """Rows as the sink's RecordConverter gives them for a table's schema."""
        return self._ask(messages, table=table)

    def _ask(self, messages: Sequence[Message], **question: Any) -> list[Answer]:
        fields = ("value", "typed", "key", "timestamp", "offset", "topic", "partition")
        question["records"] = [{name: getattr(m, name) for name in fields} for m in messages]
        pipe, answers = self._process.stdin, self._process.stdout
        assert pipe is not None
        assert answers is not None
        pipe.write(json.dumps(question) + "\n")
        pipe.flush()
        found = json.loads(answers.readline(), parse_int=int)
        return found if isinstance(found, list) else [found] * len(messages)


@contextmanager
def running() -> Iterator[Java]:
    source = Path(__file__).with_name("Reference.java")
    classes = f"{jars('connect-reference', _JARS)}/*"
    with tempfile.TemporaryFile("w+") as log:
        command = [
            java(),
            "-XX:TieredStopAtLevel=1",
            "-Duser.language=en",
            "-Duser.country=US",
            "-cp",
            classes,
            str(source),
        ]
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, encoding="utf-8"
        )
        try:
            yield Java(process)
        finally:
            process.kill()
            process.wait()
