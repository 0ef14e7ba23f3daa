"""The sink with storage credentials that the catalog lends for a table, and that expire while it runs."""

from __future__ import annotations

import json
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import boto3
import pytest

from calving import retries
from calving.engine.interface import LocalEngine
from calving.errors import GaveUpError
from calving.iceberg.catalog import open_catalog
from calving.retries import Backoff
from calving.runtime.app import App
from calving.settings.load import load
from harness.http_proxy import Answer, Fate, HttpProxy, Request
from harness.servers import KEY, SeaweedFs, clients
from harness.topic import Topic
from tests.cli.commands import Cli
from tests.engine.standalone import eventually
from tests.iceberg.test_catalog_servers import SIGNED, rows, sink_on
from tests.tasks.conftest import encode

pytestmark = pytest.mark.services
_MAY_WRITE = {
    "Version": "2012-10-17",
    "Statement": [{"Effect": "Allow", "Action": "s3:*", "Resource": "arn:aws:s3:::*"}],
}


class Lender:
    """A REST catalog whose every answer to a load of a table has new credentials, each an identity of the store, and
    withdraws them later. It is SeaweedFS's, with proxies before the catalog and before the store.
    """

    def __init__(self, server: SeaweedFs) -> None:
        client = clients(server.s3["s3.endpoint"])
        boto3.client("s3tables", **client).create_table_bucket(name="lending")
        self._iam = boto3.client("iam", **client)
        self.seconds = float("inf")
        """For how long credentials are lent."""
        self.bytes = float("inf")
        """For how many bytes of requests they are lent."""
        self.void = False
        """The next ones are withdrawn before the catalog answers, until one of them has signed a request."""
        self.lent: dict[str, float] = {}
        """By access key, until when."""
        self.withdrawn: set[str] = set()
        self.signers: Counter[str] = Counter()
        self._signed: Counter[str] = Counter()
        """Bytes by access key."""
        self.broken = ""
        """The catalog fails to load tables whose address ends so."""
        self._lock = threading.Lock()
        self._store = HttpProxy(server.port, self._heard)
        self._catalog = HttpProxy(server.catalog_port, self._asked, self._answered)
        own = {"s3.endpoint": self._store.uri, "s3.region": "us-east-1"}
        self.keys = {"type": "rest", "uri": self._catalog.uri, "warehouse": "s3://lending", **SIGNED, **own}
        self.without = {**self.keys, "uri": server.uri}
        """The same catalog, which lends nothing."""

    def close(self) -> None:
        self._catalog.close()
        self._store.close()

    def withdraw_all(self) -> None:
        """So that none that was lent before is withdrawn later."""
        with self._lock:
            for key in self.lent.keys() - self.withdrawn:
                self._withdraw(key)

    def _heard(self, request: Request) -> Fate:
        with self._lock:
            self.signers[request.signer] += 1
            self.void = self.void and request.signer not in self.withdrawn
            self._signed[request.signer] += request.size
            for key, until in self.lent.items():
                expired = time.monotonic() >= until or self._signed[key] > self.bytes
                if expired and key not in self.withdrawn:
                    self._withdraw(key)
        return "answered"

    def _asked(self, request: Request) -> Fate | Answer:
        if self.broken and request.path.endswith(self.broken):
            return Answer(500, {"error": {"message": "not now", "type": "InternalServerError", "code": 500}})
        return "answered"

    def _answered(self, request: Request, body: bytes) -> bytes:
        answer = json.loads(body) if request.method == "GET" and "/tables/" in request.path and body else {}
        if "metadata" not in answer:
            return body
        with self._lock:
            return json.dumps(answer | {"config": answer.get("config", {}) | self._lend()}).encode()

    def _lend(self) -> dict[str, str]:
        name = f"lent-{len(self.lent)}"
        self._iam.create_user(UserName=name)
        self._iam.put_user_policy(UserName=name, PolicyName="write", PolicyDocument=json.dumps(_MAY_WRITE))
        found = self._iam.create_access_key(UserName=name)["AccessKey"]
        key: str = found["AccessKeyId"]
        self.lent[key] = time.monotonic() + self.seconds
        if self.void:
            self._withdraw(key)
        return {"s3.access-key-id": key, "s3.secret-access-key": found["SecretAccessKey"]}

    def _withdraw(self, key: str) -> None:
        self._iam.delete_access_key(UserName=f"lent-{[*self.lent].index(key)}", AccessKeyId=key)
        self.withdrawn.add(key)


@pytest.fixture(scope="module")
def started(seaweedfs: SeaweedFs) -> Iterator[Lender]:
    lender = Lender(seaweedfs)
    yield lender
    lender.close()


@pytest.fixture
def lender(started: Lender) -> Lender:
    started.seconds, started.bytes, started.void, started.broken = float("inf"), float("inf"), False, ""
    started.withdraw_all()
    started.signers.clear()
    return started


@pytest.fixture
def cli(lender: Lender, tmp_path: Path, topic: Callable[..., Topic], unique: str) -> Cli:
    return sink_on(lender.keys, tmp_path, topic(), unique)


def test_files_are_written_with_what_the_catalog_lends_and_with_nothing_else(lender: Lender, cli: Cli) -> None:
    cli.topic.send(*encode({"id": 1}))
    cli.run_here()
    assert lender.signers
    assert lender.signers.keys() <= lender.lent.keys()
    assert [row["id"] for row in rows(cli)] == [1]


def test_a_batch_whose_credentials_are_withdrawn_is_repeated_with_new_ones(lender: Lender, cli: Cli) -> None:
    cli.topic.send(*encode({"id": 1}))
    cli.run_here()
    cli.topic.send(*encode({"id": 2}, {"id": 3}))
    lender.void = True
    cli.run_here()
    assert lender.signers.keys() & lender.withdrawn
    assert Counter(row["id"] for row in rows(cli)) == Counter((1, 2, 3))


def test_a_worker_that_runs_for_longer_than_its_credentials_live_goes_on(lender: Lender, cli: Cli) -> None:
    lender.seconds = 4.0
    app = App(load(cli.config), LocalEngine())
    worker = threading.Thread(target=app.run)
    worker.start()
    try:
        for number in range(3):
            cli.topic.send(*encode({"id": number}))
            wait_for_rows(lender, cli, number + 1)
            time.sleep(lender.seconds)
    finally:
        app.stop()
        worker.join(60)
    assert Counter(row["id"] for row in rows(cli)) == Counter(range(3))
    assert len(lender.signers.keys() & lender.withdrawn) > 2
    assert KEY not in lender.signers


@pytest.fixture
def quick_to_start_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same number of attempts, with shorter pauses."""
    for pauses in ("_PASSING", "_FAILING"):
        monkeypatch.setattr(retries, pauses, Backoff(0.002, 0.05))


def wide(first: int, end: int) -> list[bytes]:
    """A thousand bytes each, which no codec makes less of."""
    return encode(*({"id": i, "text": random.Random(i).randbytes(750).hex()[:1000]} for i in range(first, end)))


@pytest.mark.usefixtures("quick_to_start_over")
def test_a_batch_that_outlives_its_credentials_is_repeated_in_smaller_ones(lender: Lender, cli: Cli) -> None:
    cli.topic.send(*encode({"id": -1, "text": ""}))
    cli.run_here()
    before = len(lender.withdrawn)
    lender.bytes = 1_500_000
    cli.topic.send(*wide(0, 4_000))
    app = cli.run_here()
    assert app.status.worker.restarts == len(lender.withdrawn) - before == 1
    assert Counter(row["id"] for row in rows(cli)) == Counter(range(-1, 4_000))


@pytest.mark.usefixtures("quick_to_start_over")
def test_credentials_that_expire_within_every_batch_stop_the_sink_however_small(lender: Lender, cli: Cli) -> None:
    cli.topic.send(*wide(0, 4_000))
    lender.bytes = 0
    with pytest.raises(GaveUpError, match=r"have expired .*\. The batch had 1000 records, the next has 1000 at most"):
        cli.run_here()


@pytest.mark.usefixtures("quick_to_start_over")
def test_records_of_a_table_that_the_catalog_cannot_load_wait_for_it_also_after_its_credentials_have_expired(
    lender: Lender, cli: Cli
) -> None:
    other = f"{cli.name}_b"
    cli.keys["iceberg.tables"] = f"db.{cli.name},db.{other}"
    app = App(load(cli.config), LocalEngine())
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(app.run)
        try:
            cli.topic.send(*encode({"id": 1}))
            wait_for_rows(lender, cli, 1)
            lender.broken, lender.bytes = f"/{other}", 0
            cli.topic.send(*encode({"id": 2}))
            eventually(lambda: running.done() or app.status.worker.restarts > retries.SAME, 120)
            assert f"table db.{other} cannot be loaded" in str(app.status.worker.error)
            assert "not accepted any more" in str(app.status.worker.error)
            lender.broken, lender.bytes = "", float("inf")
            for table in (cli.name, other):
                wait_for_rows(lender, cli, 2, table)
        finally:
            app.stop()
    assert [row["id"] for row in rows(cli)] == [1, 2]
    cli.name = other
    assert [row["id"] for row in rows(cli)] == [1, 2]


def test_a_session_for_one_table_is_enough_to_write_it(
    tmp_path: Path, topic: Callable[..., Topic], unique: str
) -> None:
    server = SeaweedFs(tmp_path / "seaweedfs", lends=True)
    try:
        boto3.client("s3tables", **clients(server.s3["s3.endpoint"])).create_table_bucket(name="lake")
        keys = {"type": "rest", "uri": server.uri, "warehouse": "s3://lake", **SIGNED, "s3.region": "us-east-1"}
        cli = sink_on(keys, tmp_path, topic(), unique)
        cli.topic.send(*encode({"id": 1}))
        cli.run_here()
        assert [row["id"] for row in rows(cli)] == [1]
        lent = open_catalog("iceberg", keys).load_table(f"db.{unique}").io
        assert lent.properties["s3.session-token"]
        elsewhere = lent.new_output("s3://lake/db/another/data/a.parquet")
        with pytest.raises(OSError, match="ACCESS_DENIED"):
            elsewhere.create(overwrite=True)
    finally:
        server.stop()


def wait_for_rows(lender: Lender, cli: Cli, count: int, table: str = "") -> None:
    table = f"db.{table or cli.name}"
    deadline = time.monotonic() + 120
    while (found := committed(lender, table)) < count:
        assert time.monotonic() < deadline, f"{found} of {count} rows in {table}"
        time.sleep(0.2)


def committed(lender: Lender, table: str) -> int:
    """By the catalog alone: only the sink asks the store."""
    catalog = open_catalog("iceberg", lender.without)
    if not catalog.table_exists(table):
        return 0
    head = catalog.load_table(table).current_snapshot()
    return int(str(head.summary["total-records"])) if head is not None and head.summary is not None else 0
