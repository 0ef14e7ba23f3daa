"""One batch on a Spark engine, in a process of its own: ``python -m tests.spark.batch SERVERS TOPIC FOLDER JSON``."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from calving.engine.spark import SparkEngine
from tests.conftest import Topic
from tests.data.conftest import Plane


class Existing(Topic):
    def __init__(self, servers: str, name: str) -> None:
        self.servers, self.name = servers, name


def main() -> None:
    servers, topic, folder, properties = sys.argv[1:]
    plane = Plane(Path(folder))
    plane.engine = SparkEngine("test", json.loads(properties))
    try:
        outcome = plane.take(Existing(servers, topic))
        ids = plane.rows()["id"].to_pylist()
        (files,) = outcome.written.values()
        print(json.dumps({"rows": len(ids), "distinct": len(set(ids)), "files": len(files.data_files)}))
    finally:
        plane.engine.close()


if __name__ == "__main__":
    main()
