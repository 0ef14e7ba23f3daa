"""The command line as a user runs it, over one sink's configuration."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from calving.iceberg.catalog import open_catalog
from tests.conftest import Topic


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

    def run(self, *arguments: str, code: int = 0) -> str:
        env = {**os.environ, "COLUMNS": "200"}
        done = subprocess.run(
            self.command(*arguments), capture_output=True, text=True, timeout=90, check=False, env=env
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    def rows(self) -> int:
        return len(open_catalog("iceberg", self.catalog_keys).load_table("db.t").scan().to_arrow())
