"""Real services, started once for all tests that ask for them."""

from __future__ import annotations

import contextlib
import gc
import itertools
import logging
import os
import tempfile
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from calving import secrets
from calving.converters.native_whole import NativeWhole
from calving.errors import NotInstalledError
from calving.services.kafka import KafkaServer, kafka
from calving.services.process import Container, Process
from calving.services.rest_catalog import RestCatalog
from calving.source import members
from harness import nursery
from harness.registry import SchemaRegistry, serving
from harness.topic import Topic

logging.getLogger("calving.librdkafka").setLevel(logging.CRITICAL)
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")

_PROCESS = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
_NUMBERS = itertools.count(1 + _PROCESS * 100_000)
_SHARED = pytest.StashKey[str]()
_LONGEST = {"test_campaign.py", "test_engine.py", "test_parking.py", "test_cluster.py", "test_connect_server.py"}
_LONGEST |= {"test_rollback_interruptions.py", "test_positions.py", "test_trials.py", "test_campaign_rollbacks.py"}
_LONGEST |= {"test_streams.py", "test_batch_writes.py", "test_guide.py", "test_backfill.py", "test_pipelines.py"}
_LONGEST |= {"test_deleted_keys.py", "test_row_orders.py", "test_translation.py", "test_spark_writes.py"}
_LONGEST |= {"test_foreach.py", "test_reads.py", "test_upserts.py"}
"""Modules that take minutes. They come first, so that none of several processes is left with one at the end."""
_SERVICES = {"servers", "own_broker", "rest_uri"}
"""Fixtures that start a service. Tests that start one by another way carry the marker themselves."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if _SERVICES & set(getattr(item, "fixturenames", ())):
            item.add_marker("services")
    items.sort(key=lambda item: item.path.name not in _LONGEST)


def pytest_collection_finish() -> None:
    """What has been imported stays, so the collector need not look at it again and again: a twentieth of the CPU time of tests."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)


@pytest.fixture(scope="module", autouse=True)
def no_secrets_of_other_tests() -> Iterator[None]:
    """Texts of a module's tests are masked by the settings of these tests alone."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(secrets, "_KNOWN", secrets._Known())
        yield


@pytest.fixture(scope="module", autouse=True)
def no_levels_of_other_tests() -> Iterator[None]:
    """A sink's page sets the levels of logs for the whole process: other modules read logs as these are by default."""
    logs = [logging.getLogger(name) for name in (None, "calving")]
    levels = [log.level for log in logs]
    yield
    for log, level in zip(logs, levels, strict=True):
        log.setLevel(level)


@pytest.fixture(scope="session", autouse=True)
def unmarked_tests_start_no_service(pytestconfig: pytest.Config) -> Iterator[None]:
    """Under ``-m "not services"`` a test that starts one fails, and says which marker it lacks."""
    with pytest.MonkeyPatch.context() as patch:
        if _without_services(pytestconfig):
            patch.setattr(Process, "__init__", _refuse)
            patch.setattr(Container, "__init__", _refuse)
        yield


def _without_services(config: pytest.Config) -> bool:
    return str(config.option.markexpr).startswith("not services")


def _refuse(*arguments: object, **named: object) -> None:
    pytest.fail("this test starts a service: mark it with pytest.mark.services")


def _or_skip() -> Generator[None, object, object]:
    """A program that is not installed fails a test in CI; elsewhere the test is skipped, and says why."""
    try:
        return (yield)
    except NotInstalledError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(f"NOT RUN: {error}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, object, object]:
    return (yield from _or_skip())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    return (yield from _or_skip())


@pytest.fixture(scope="session", autouse=True)
def few_values_go_the_fast_way_too() -> Iterator[None]:
    """As many do: tests are of few."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(NativeWhole, "few", 0)
        yield


@pytest.fixture(scope="module", autouse=True)
def members_are_asked_for_by_a_process_that_is_forked(pytestconfig: pytest.Config) -> Iterator[None]:
    """Their starts were a quarter of the CPU time of tests of a sink on Kafka: each start of a sink asks."""
    with pytest.MonkeyPatch.context() as patch:
        if not _without_services(pytestconfig):
            patch.setattr(members, "_answered", nursery.answered)
        yield


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """The processes of one run share a broker, because an idle broker takes a twentieth of a core."""
    config: pytest.Config = node.config
    if _without_services(config):
        return
    if _SHARED not in config.stash:
        stack = contextlib.ExitStack()
        config.add_cleanup(stack.close)
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="kafka-"))
        with contextlib.suppress(NotInstalledError):  # the tests that need a broker say so
            config.stash[_SHARED] = stack.enter_context(kafka(Path(folder)))
    node.workerinput["servers"] = config.stash.get(_SHARED, None)


@pytest.fixture(scope="session")
def servers(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The bootstrap servers of a broker that all tests share."""
    if shared := getattr(pytestconfig, "workerinput", {}).get("servers"):
        yield shared
        return
    with kafka(tmp_path_factory.mktemp("kafka")) as found:
        yield found


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[KafkaServer]:
    """A broker that a test may kill."""
    broker = KafkaServer(tmp_path / "kafka")
    broker.start()
    try:
        yield broker
    finally:
        broker.stop()


@pytest.fixture(scope="session")
def rest_uri(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Apache's REST catalog server, shared by all tests."""
    server = RestCatalog(tmp_path_factory.mktemp("rest"))
    try:
        yield server.uri
    finally:
        server.stop()


@pytest.fixture
def registry() -> Iterator[SchemaRegistry]:
    with serving() as found:
        yield found


@pytest.fixture
def unique() -> str:
    """A name that no other test uses, in no process."""
    return f"x{next(_NUMBERS)}"


@pytest.fixture
def topic(servers: str, unique: str) -> Callable[..., Topic]:
    """Makes topics: ``topic(partitions=2)``."""
    numbers = itertools.count()

    def make(partitions: int = 1, config: dict[str, str] | None = None) -> Topic:
        return Topic(servers, f"{unique}-{next(numbers)}", partitions, config)

    return make


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite", action="store_true", help="write transcripts and generated pages again")
