"""The sink on an S3 that is busy, breaks connections, or denies: nothing is lost, and retries come to an end."""

from __future__ import annotations

import base64
import random
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import boto3
import pytest

from calving import retries
from calving.errors import GaveUpError
from calving.retries import Backoff
from harness.http_proxy import Fate, HttpProxy, Request
from harness.servers import READER, WRITER, SeaweedFs, clients
from harness.topic import Topic
from tests.cli.commands import Cli
from tests.iceberg.test_catalog_servers import Keys, rows, sink_on
from tests.tasks.conftest import encode

pytestmark = pytest.mark.services


class Store:
    """S3 of SeaweedFS behind a proxy, which keeps a list of the requests."""

    def __init__(self, server: SeaweedFs) -> None:
        self._server = server
        boto3.client("s3", **clients(server.s3["s3.endpoint"])).create_bucket(Bucket="lake")
        self.decide: Callable[[int], Fate] = lambda number: "answered"
        """By the number of the request."""
        self.asked: list[Request] = []
        self._numbers = count()
        self._proxy = HttpProxy(server.port, self._fate)

    def _fate(self, request: Request) -> Fate:
        self.asked.append(request)
        return self.decide(next(self._numbers))

    def keys(self, folder: Path) -> Keys:
        """Those of a catalog with tables here."""
        s3 = {**self._server.s3, "s3.endpoint": self._proxy.uri}
        return {"type": "sql", "uri": f"sqlite:///{folder / 'catalog.db'}", "warehouse": "s3://lake/warehouse", **s3}

    def close(self) -> None:
        self._proxy.close()


@pytest.fixture(scope="module")
def started(seaweedfs: SeaweedFs) -> Iterator[Store]:
    store = Store(seaweedfs)
    yield store
    store.close()


@pytest.fixture
def store(started: Store) -> Store:
    started.decide = lambda number: "answered"
    started.asked.clear()
    return started


@pytest.fixture
def cli(store: Store, tmp_path: Path, topic: Callable[..., Topic], unique: str) -> Cli:
    return sink_on(store.keys(tmp_path), tmp_path, topic(), unique)


def test_a_busy_store_that_breaks_connections_loses_nothing_and_no_request_is_repeated_for_ever(
    store: Store, cli: Cli
) -> None:
    troubles: dict[int, Fate] = {1: "busy", 4: "reset", 7: "answer lost"}
    store.decide = lambda number: troubles.get(number % 9, "answered")
    for first in (0, 50):
        cli.topic.send(*encode(*({"id": i} for i in range(first, first + 50))))
        cli.run_here()
    assert Counter(row["id"] for row in rows(cli)) == Counter(range(100))
    writes = Counter((r.method, r.path) for r in store.asked if r.method in ("PUT", "POST"))
    assert len(writes) > 20
    assert 1 < max(writes.values()) <= 3
    assert {urlsplit(request.path).path.split("/")[1] for request in store.asked} == {"lake"}  # path-style


def test_a_file_larger_than_a_part_is_uploaded_in_parts(store: Store, cli: Cli) -> None:
    texts = [base64.b64encode(random.Random(i).randbytes(500_000)).decode() for i in range(50)]
    cli.topic.send(*encode(*({"id": i, "text": text} for i, text in enumerate(texts))))
    cli.run_here()
    assert [row["text"] for row in sorted(rows(cli), key=lambda row: int(str(row["id"])))] == texts
    parts: dict[str, dict[int, int]] = {}
    for request in store.asked:
        path, query = urlsplit(request.path).path, parse_qs(urlsplit(request.path).query)
        if "partNumber" in query and "/data/" in path:
            parts.setdefault(path, {})[int(query["partNumber"][0])] = request.size
    (sizes,) = parts.values()
    assert len(sizes) > 1
    assert min(size for part, size in sizes.items() if part < len(sizes)) >= 5 * 1024 * 1024


@pytest.fixture
def quick_to_give_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same number of attempts, with shorter pauses."""
    monkeypatch.setattr(retries, "_FAILING", Backoff(0.002, 0.05))


def sign_in(cli: Cli, identity: dict[str, str]) -> None:
    cli.keys |= {f"iceberg.catalog.{key}": value for key, value in identity.items()}


@pytest.mark.usefixtures("quick_to_give_up")
def test_a_store_that_denies_writes_stops_the_sink_with_file_and_permission(store: Store, cli: Cli) -> None:
    cli.topic.send(*encode({"id": 1}))
    cli.run_here()
    sign_in(cli, READER)
    cli.topic.send(*encode({"id": 2}))
    store.asked.clear()
    file = rf"s3://lake/warehouse/db(\.db)?/{cli.name}/data/[^ ]+\.parquet"
    with pytest.raises(GaveUpError, match=f"denies access to {file} in CreateMultipartUpload .*s3:PutObject"):
        cli.run_here()
    assert [r.method for r in store.asked if "/data/" in r.path].count("POST") == retries.SAME
    assert [row["id"] for row in rows(cli)] == [1]


@pytest.mark.usefixtures("quick_to_give_up")
def test_a_table_that_the_store_does_not_let_it_create_stops_the_sink(store: Store, cli: Cli) -> None:
    sign_in(cli, READER)
    cli.topic.send(*encode({"id": 1}))
    with pytest.raises(GaveUpError, match=f"table db.{cli.name} was not created: S3 denies .*s3:PutObject"):
        cli.run_here()


@pytest.mark.usefixtures("quick_to_give_up")
def test_a_table_whose_metadata_the_store_does_not_let_it_read_stops_the_sink(store: Store, cli: Cli) -> None:
    cli.topic.send(*encode({"id": 1}))
    cli.run_here()
    sign_in(cli, WRITER)
    cli.topic.send(*encode({"id": 2}))
    file = rf"s3://lake/warehouse/db(\.db)?/{cli.name}/metadata/[^ ]+\.metadata\.json"
    with pytest.raises(GaveUpError, match=f"db.{cli.name} cannot be loaded: S3 denies access to {file} .*s3:GetObject"):
        cli.run_here()
    assert [row["id"] for row in rows(cli)] == [1]
