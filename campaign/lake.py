"""Where the tables are, if they are not on local disk: in S3, behind a REST catalog."""

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
from campaign.http_proxy import Fate, HttpProxy, Request
from tests.iceberg.servers import SeaweedFs, clients

_BUCKET = "lake"
_START_SECONDS = 90.0


class Lake:
    """SeaweedFS as the store, and Apache's REST server with SQLite as the catalog. Workers and the catalog reach the
    store through a proxy; the checker reaches it directly.
    """

    def __init__(self, folder: Path, rng: random.Random) -> None:
        self._rng = rng
        self._troubles: Mapping[Fate, float] = {}
        self.store = SeaweedFs(folder / "seaweedfs")
        self._client = boto3.client(
            "s3", **clients(self.store.s3["s3.endpoint"]), config=Config(connect_timeout=2, read_timeout=5)
        )
        self._wait()
        self._client.create_bucket(Bucket=_BUCKET)
        self._proxy = HttpProxy(self.store.port, self._decide)
        s3 = {**self.store.s3, "s3.endpoint": self._proxy.uri}
        self.catalog = RestCatalog(folder / "rest", f"s3://{_BUCKET}/warehouse", s3)
        self.database = self.catalog.database
        self.keys = {"type": "rest", "uri": self.catalog.uri, **s3}
        """Those of a sink's catalog."""

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
        self.catalog.stop()
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
