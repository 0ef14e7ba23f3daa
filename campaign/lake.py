"""Where the tables are, if they are not in the embedded catalog: behind a REST catalog, on local disk or in S3."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from calving.services.rest_catalog import RestCatalog
from harness.http_proxy import Fate, HttpProxy, Request
from harness.servers import SeaweedFs, clients

_BUCKET = "lake"
_START_SECONDS = 90.0


class Lake:
    """Apache's REST server with SQLite as the catalog."""

    s3: Mapping[str, str] | None = None
    """The properties of the store with the tables, if that is not the disk."""

    def __init__(self, catalog: RestCatalog, keys: Mapping[str, str]) -> None:
        self.catalog = catalog
        self.database = catalog.database
        self.keys = {"type": "rest", "uri": catalog.uri, **keys}
        """Those of a sink's catalog."""

    def stop(self) -> None:
        self.catalog.stop()


def on_disk(folder: Path) -> Lake:
    return Lake(RestCatalog(folder / "rest"), {})


class S3Lake(Lake):
    """SeaweedFS is the store. Workers and the catalog reach it through a proxy; the checker reaches it directly."""

    def __init__(self, folder: Path, rng: random.Random) -> None:
        self._rng = rng
        self._troubles: Mapping[Fate, float] = {}
        self.store = SeaweedFs(folder / "seaweedfs")
        self.s3 = self.store.s3
        self._client = boto3.client(
            "s3", **clients(self.s3["s3.endpoint"]), config=Config(connect_timeout=2, read_timeout=5)
        )
        self._wait()
        self._client.create_bucket(Bucket=_BUCKET)
        self._proxy = HttpProxy(self.store.port, self._decide)
        through = {**self.s3, "s3.endpoint": self._proxy.uri}
        super().__init__(RestCatalog(folder / "rest", f"s3://{_BUCKET}/warehouse", through), through)

    @contextlib.contextmanager
    def trouble(self, troubles: Mapping[Fate, float]) -> Iterator[None]:
        """While it is entered, these shares of the requests to the store have another fate than an answer."""
        self._troubles = troubles
        try:
            yield
        finally:
            self._troubles = {}

    def restart_store(self, seconds: float) -> None:
        """It is gone for so long, and for as long as it takes to start."""
        self.store.kill()
        time.sleep(seconds)
        self.store.start()
        self._wait()

    def stop(self) -> None:
        super().stop()
        self._proxy.close()
        self.store.stop()

    def _wait(self) -> None:
        """Until the store answers."""
        deadline = time.monotonic() + _START_SECONDS
        while True:
            try:
                self._client.list_buckets()
                return
            except (BotoCoreError, ClientError):
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)

    def _decide(self, request: Request) -> Fate:
        roll = self._rng.random()
        for fate, share in self._troubles.items():
            if roll < share:
                return fate
            roll -= share
        return "answered"
