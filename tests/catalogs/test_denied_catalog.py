"""The sink on a REST catalog that refuses its login, or what it asks for: nothing is lost, tries come to an end, and
the error names the key to look at.
"""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import count
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from calving import retries
from calving.cli.inspect import validate
from calving.engine.interface import LocalEngine
from calving.errors import ConfigError, GaveUpError
from calving.iceberg.catalog import open_catalog
from calving.retries import Backoff
from calving.runtime.app import App
from calving.settings.load import load
from harness.http_proxy import Answer, Fate, HttpProxy, Request
from harness.topic import Topic
from tests.cli.commands import Cli
from tests.engine.standalone import eventually
from tests.iceberg.test_catalog_servers import rows, sink_on
from tests.tasks.conftest import encode

pytestmark = pytest.mark.services
TOKEN, CREDENTIAL = "an-old-token", "sink:open-sesame"


class Gate:
    """Apache's server behind a proxy that asks for a token, and gives new ones for a credential."""

    def __init__(self, uri: str) -> None:
        self.open_uri = uri
        self.left: dict[str, float] = {TOKEN: float("inf")}
        """How many requests a token is good for."""
        self.requests = float("inf")
        """The same, of new ones."""
        self.is_withdrawn = False
        """Whether the credential is."""
        self.forbidden: Callable[[Request], bool] = lambda request: False
        self.instead: Callable[[Request], Answer | None] = lambda request: None
        """An answer in place of the server's."""
        self.denied: Counter[int] = Counter()
        """Answers by status."""
        port = urlsplit(uri).port
        assert port is not None
        self._proxy = HttpProxy(port, self._decide)
        self.uri = self._proxy.uri

    def close(self) -> None:
        self._proxy.close()

    def _decide(self, request: Request) -> Fate | Answer:
        if request.path.endswith("/oauth/tokens"):
            if self.is_withdrawn:
                why = {"error": "invalid_client", "error_description": f"{CREDENTIAL} is not known here"}
                return self._answer(401, why)
            token = f"new-token-{len(self.left)}"
            self.left[token] = self.requests
            return Answer(200, {"access_token": token, "token_type": "bearer"})
        if self.left.get(request.token, 0) <= 0:
            return self._answer(401, _error("NotAuthorizedException", f"no such token: {request.token}", 401))
        self.left[request.token] -= 1
        if self.forbidden(request):
            return self._answer(403, _error("ForbiddenException", "the principal may not do this", 403))
        return self.instead(request) or "answered"

    def _answer(self, status: int, body: Mapping[str, object]) -> Answer:
        self.denied[status] += 1
        return Answer(status, body)


def _error(kind: str, message: str, code: int) -> dict[str, object]:
    return {"error": {"message": message, "type": kind, "code": code}}


@pytest.fixture
def gate(rest_uri: str) -> Iterator[Gate]:
    made = Gate(rest_uri)
    yield made
    made.close()


@pytest.fixture
def cli(gate: Gate, tmp_path: Path, topic: Callable[..., Topic], unique: str) -> Cli:
    made = sink_on({"type": "rest", "uri": gate.uri}, tmp_path, topic(), unique)
    made.keys["iceberg.catalog.oauth2-server-uri"] = f"{gate.uri}/v1/oauth/tokens"
    made.catalog_keys = {"type": "rest", "uri": gate.open_uri}
    return made


@pytest.fixture(autouse=True)
def quick_to_give_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same number of attempts, with shorter pauses."""
    monkeypatch.setattr(retries, "_FAILING", Backoff(0.002, 0.05))


@contextlib.contextmanager
def running(cli: Cli) -> Iterator[tuple[App, Future[None]]]:
    """The sink, after its first commit."""
    app = App(load(cli.config), LocalEngine())
    cli.topic.send(*encode({"id": 1}))
    with ThreadPoolExecutor(1) as pool:
        ending = pool.submit(app.run)
        try:
            eventually(lambda: ending.done() or committed(cli) == 1, 120)
            yield app, ending
        finally:
            app.stop()


def committed(cli: Cli) -> int:
    catalog = open_catalog("iceberg", cli.catalog_keys)
    if not catalog.table_exists(f"db.{cli.name}"):
        return 0
    head = catalog.load_table(f"db.{cli.name}").current_snapshot()
    return int(str(head.summary["total-records"])) if head is not None and head.summary is not None else 0


def test_a_token_that_is_withdrawn_stops_the_sink_with_its_key_and_without_itself(gate: Gate, cli: Cli) -> None:
    cli.keys["iceberg.catalog.token"] = TOKEN
    with running(cli) as (_, ending):
        gate.left[TOKEN] = 0
        cli.topic.send(*encode({"id": 2}))
        with pytest.raises(GaveUpError) as refused:
            ending.result(120)
    assert "does not accept the login of iceberg.catalog.token" in str(refused.value)
    assert f"the catalog 'iceberg' at {gate.uri}" in str(refused.value)
    assert "no such token: ***" in str(refused.value)
    gate.left[TOKEN] = float("inf")
    cli.run_here()
    assert [row["id"] for row in rows(cli)] == [1, 2]


def test_tokens_that_expire_all_the_time_are_renewed_and_nobody_starts_over(gate: Gate, cli: Cli) -> None:
    cli.keys["iceberg.catalog.credential"] = CREDENTIAL
    gate.requests = 4
    with running(cli) as (app, _):
        for number in range(2, 5):
            cli.topic.send(*encode({"id": number}))
            eventually(lambda: committed(cli) == number, 120)  # noqa: B023 - called at once
        assert app.status.worker.restarts == 0
    assert gate.denied[401] > 2
    assert [row["id"] for row in rows(cli)] == [1, 2, 3, 4]


def test_a_credential_that_is_withdrawn_stops_the_sink_when_its_token_has_expired(gate: Gate, cli: Cli) -> None:
    cli.keys["iceberg.catalog.credential"] = CREDENTIAL
    with running(cli) as (_, ending):
        gate.is_withdrawn = True
        gate.left.clear()
        cli.topic.send(*encode({"id": 2}))
        with pytest.raises(GaveUpError, match=r"does not accept the login of iceberg\.catalog\.credential") as refused:
            ending.result(120)
    assert "OAuthError: invalid_client: *** is not known here" in str(refused.value)


def test_a_table_that_the_catalog_does_not_let_it_create_stops_the_sink(gate: Gate, cli: Cli) -> None:
    cli.keys["iceberg.catalog.token"] = TOKEN
    gate.forbidden = lambda request: request.method == "POST" and request.path.endswith("/tables")
    cli.topic.send(*encode({"id": 1}))
    name = f"table db.{cli.name} was not created: the catalog 'iceberg'"
    with pytest.raises(GaveUpError, match=rf"{name} .* denies this to the login of iceberg\.catalog\.token"):
        cli.run_here()
    assert gate.denied[403] == retries.SAME


def test_a_table_that_it_may_read_and_not_commit_is_asked_once_a_cycle_and_keeps_its_records(
    gate: Gate, cli: Cli
) -> None:
    cli.keys["iceberg.catalog.token"] = TOKEN
    with running(cli) as (app, ending):
        gate.forbidden = lambda request: request.method == "POST"
        cli.topic.send(*encode({"id": 2}))
        eventually(lambda: app.status.coordinator.failing or ending.done(), 120)
        failure = app.status.coordinator.failing[f"db.{cli.name}"]
        assert "was not committed: the catalog 'iceberg'" in failure.reason
        assert "denies this to the login of iceberg.catalog.token" in failure.reason
        assert gate.denied[403] <= failure.times + 1  # the next cycle may have begun
        gate.forbidden = lambda request: False
        eventually(lambda: committed(cli) == 2 or ending.done(), 120)
    assert [row["id"] for row in rows(cli)] == [1, 2]


@pytest.fixture
def with_a_table(gate: Gate, cli: Cli) -> str:
    """The path of the table, to which commits go."""
    cli.keys["iceberg.catalog.token"] = TOKEN
    cli.topic.send(*encode({"id": 1}))
    cli.run_here()
    return f"/v1/namespaces/db/tables/{cli.name}"


def test_validate_passes_a_catalog_that_checks_commits_and_has_branches(cli: Cli, with_a_table: str) -> None:
    cli.keys["iceberg.tables.default-commit-branch"] = "audit"
    said = list(validate(load(cli.config)))
    assert "catalog: commits: the catalog refuses those whose requirements do not hold" in said
    assert "catalog: branches: the catalog makes and removes them" in said
    assert [row["id"] for row in rows(cli)] == [1]


def test_validate_refuses_a_catalog_that_accepts_commits_whose_requirements_do_not_hold(
    gate: Gate, cli: Cli, with_a_table: str
) -> None:
    table = open_catalog("iceberg", cli.catalog_keys).load_table(f"db.{cli.name}")
    accepted = Answer(
        200,
        {"metadata-location": table.metadata_location, "metadata": json.loads(table.metadata.model_dump_json())},
    )
    gate.instead = lambda request: (
        accepted if (request.method, urlsplit(request.path).path) == ("POST", with_a_table) else None
    )
    with pytest.raises(ConfigError, match="accepts a commit whose requirements do not hold"):
        list(validate(load(cli.config)))


def test_validate_refuses_a_catalog_without_branches_where_the_sink_commits_to_one(
    gate: Gate, cli: Cli, with_a_table: str
) -> None:
    commits = count()
    conflict = Answer(409, _error("CommitFailedException", "Requirement failed: UUID does not match", 409))
    no_branches = Answer(400, _error("BadRequestException", "only main is supported", 400))

    def instead(request: Request) -> Answer | None:
        # The first commit is the one whose requirement does not hold, the second makes a branch.
        if (request.method, urlsplit(request.path).path) != ("POST", with_a_table):
            return None
        return no_branches if next(commits) else conflict

    gate.instead = instead
    cli.keys["iceberg.tables.default-commit-branch"] = "audit"
    with pytest.raises(
        ConfigError, match=r"refuses branches: .*only main is supported; commit to main, not to 'audit'"
    ):
        list(validate(load(cli.config)))
