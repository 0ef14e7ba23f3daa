"""The command line as a user runs it, over one sink's configuration, and the same without a process of its own."""

from __future__ import annotations

import contextlib
import itertools
import json
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as KafkaPartition

from calving.cli.recover import recover
from calving.engine.interface import LocalEngine
from calving.errors import DataLossError
from calving.iceberg.catalog import open_catalog
from calving.model.offsets import TopicPartition
from calving.runtime.app import App
from calving.settings.load import load
from calving.source.client import client_config
from calving.source.members import members
from harness.nursery import Forked
from harness.topic import Topic
from tests.tasks.conftest import encode

_NUMBERS = itertools.count()


class Cli:
    """A sink's configuration, and the command line over it."""

    def __init__(self, folder: Path, topic: Topic, name: str) -> None:
        self.topic, self.name, self.folder = topic, name, folder
        self.catalog_keys = {"type": "embedded", "warehouse": str(folder / "warehouse")}
        self.keys = {
            "name": name,
            "topics": topic.name,
            "iceberg.tables": "db.t",
            "iceberg.tables.auto-create-enabled": True,
            "iceberg.control.topic": f"control-{name}",
            "iceberg.control.commit.interval-ms": 1000,
            "iceberg.engine": "local",
            "kafka.session.timeout.ms": 3000,
            "kafka.bootstrap.servers": topic.servers,
            **{f"iceberg.catalog.{k}": v for k, v in self.catalog_keys.items()},
        }

    @property
    def config(self) -> Path:
        path = self.folder / "sink.json"
        path.write_text(json.dumps(self.keys))
        return path

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-c", "from calving.cli.main import main; main()", *arguments, str(self.config)]

    def run(self, *arguments: str, code: int = 0, seconds: float = 240) -> str:
        ended, said = self._ended("harness.command", *arguments, seconds=seconds)
        assert ended == code, said
        return said

    def _ended(self, module: str, *arguments: str, seconds: float, **env: str) -> tuple[int, str]:
        """The exit code of a process, and what it has written."""
        log = self.folder / f"{next(_NUMBERS)}.log"
        process = Forked(module, [*arguments, str(self.config)], log, env)
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            pytest.fail(f"{module} {arguments} has not ended for {seconds} s: {log.read_text()}")
        return code, log.read_text()

    def started(self) -> Forked:
        """A worker that runs until somebody ends it."""
        return Forked("harness.command", ["run", str(self.config)], self.folder / f"{next(_NUMBERS)}.log", {})

    def rows(self) -> int:
        return len(open_catalog("iceberg", self.catalog_keys).load_table("db.t").scan().to_arrow())

    # Without the time that a process takes to start

    def run_here(self) -> App:
        app = App(load(self.config), LocalEngine())
        app.run(until_caught_up=True)
        return app

    def refused(self, why: str) -> None:
        with pytest.raises(DataLossError, match=re.escape(why)):
            self.run_here()

    def recover_here(self, former: str | None = None, rolled_back: Sequence[str] = ()) -> list[str]:
        return list(recover(load(self.config), rolled_back, former, dry_run=False))

    # Records with their numbers as ids

    def send(self, first: int, end: int) -> None:
        self.topic.send(*encode(*({"id": i} for i in range(first, end))))

    def move(self, offset: int) -> None:
        """Store another position, as an operator does with kafka-consumer-groups.sh."""
        group = load(self.config).group
        with contextlib.closing(
            Consumer(client_config({"bootstrap.servers": self.topic.servers}, group_id=group))
        ) as client:
            client.commit(offsets=[KafkaPartition(self.topic.name, 0, offset)], asynchronous=False)

    def ids(self, table: str = "db.t") -> list[int]:
        rows = open_catalog("iceberg", self.catalog_keys).load_table(table).scan().to_arrow()
        found: list[int] = rows["id"].to_pylist()
        return found

    def assert_exactly_once(self, end: int) -> None:
        assert Counter(self.ids()) == Counter(range(end))

    # What dies

    def publish_without_commit(self) -> None:
        """Run a worker until it is killed right after its publication, and wait until its group has no members."""
        self.run_until_killed("publish:after:1")

    def run_until_killed(self, fault: str) -> None:
        """Run a worker until ``fault`` kills it, and wait until its group has no members."""
        backend = str(self.keys.get("iceberg.control.backend", "kafka"))
        code, said = self._ended("harness.worker", seconds=240, FAULT=fault, BACKEND=backend)
        assert code == -signal.SIGKILL, said
        self._wait_until_forgotten()

    def _wait_until_forgotten(self, seconds: float = 120) -> None:
        sink = load(self.config)
        every = [TopicPartition(self.topic.name, 0)]
        session = sink.backend(sink.identity, sink.backend_settings).open("waiting")
        deadline = time.monotonic() + seconds
        while members(sink.kafka, sink.group) or not session.lead(every, every):
            assert time.monotonic() < deadline
            time.sleep(0.2)
        session.close()
