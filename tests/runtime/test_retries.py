"""Which errors of services pass by themselves, which are bounded in time, and which stop the sink at once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import redis
import requests
from confluent_kafka import KafkaError
from kazoo import exceptions as kazoo
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import BadRequestError, RESTError, ServerError, ServiceUnavailableError
from sqlalchemy.exc import OperationalError, ProgrammingError
from thrift.transport.TTransport import TTransportException

from calving.errors import CalvingError, ConfigError, UnavailableError, UnexpectedError
from calving.iceberg.catalog import open_catalog, reaching
from calving.iceberg.rules import TableRules
from calving.iceberg.tables import Tables
from calving.model.tables import SchemaChange
from calving.retries import passes
from calving.source.client import unavailable
from calving.source.producing import Deliveries, OutRecord
from calving_kafka.transactions import _verdict
from calving_redis.connection import reaching as asking_redis
from calving_redis.connection import refused
from calving_redis.connection import writing as writing_redis
from calving_redis.options import RedisOptions
from calving_zookeeper.connection import reaching as asking

CREATE = SchemaChange("db.t", "create", (), {"struct": {"id": "long"}})


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    return open_catalog("iceberg", {"type": "embedded", "warehouse": str(tmp_path)})


def of_catalog(catalog: Catalog, error: Exception) -> CalvingError:
    with pytest.raises(CalvingError) as raised, reaching(catalog, "asking"):
        raise error
    return raised.value


AWAY = [
    ServerError("500"),
    ServiceUnavailableError("503"),
    requests.ConnectionError("refused"),
    requests.Timeout("late"),
    ConnectionRefusedError("refused"),
    TimeoutError("late"),
    OperationalError("select", {}, Exception("the server closed the connection")),
]
REFUSING = [
    "attempt to write a readonly database",
    "no such table: iceberg_tables",
    'FATAL: password authentication failed for user "u"',
]
UNTRUSTED = "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: self-signed certificate"
ODD = [RESTError("418"), KeyError("metadata-location"), ProgrammingError("select", {}, Exception("no such column"))]


@pytest.mark.parametrize("error", AWAY, ids=lambda error: type(error).__name__)
def test_a_catalog_that_is_away_is_asked_for_ever(catalog: Catalog, error: Exception) -> None:
    assert passes(of_catalog(catalog, error))


@pytest.mark.parametrize("error", ODD, ids=lambda error: type(error).__name__)
def test_a_catalog_with_an_odd_answer_is_asked_for_a_bounded_time(catalog: Catalog, error: Exception) -> None:
    assert isinstance(of_catalog(catalog, error), UnexpectedError)


@pytest.mark.parametrize("said", REFUSING)
def test_a_database_that_refuses_is_asked_for_a_bounded_time(catalog: Catalog, said: str) -> None:
    assert isinstance(of_catalog(catalog, OperationalError("select", {}, Exception(said))), UnexpectedError)


@pytest.mark.parametrize("said", ["Could not start SASL: b'Error'", "Bad SASL negotiation status: 3 (b'denied')"])
def test_a_metastore_that_refuses_the_login_is_asked_for_a_bounded_time(catalog: Catalog, said: str) -> None:
    assert isinstance(of_catalog(catalog, TTransportException(message=said)), UnexpectedError)


@pytest.mark.parametrize(
    "error", [requests.exceptions.SSLError(UNTRUSTED), OperationalError("select", {}, Exception(UNTRUSTED))]
)
def test_a_catalog_that_nobody_vouches_for_stops_the_sink(catalog: Catalog, error: Exception) -> None:
    found = of_catalog(catalog, error)
    assert isinstance(found, ConfigError) and "trust the authority of the server's certificate" in str(found)


def test_a_catalog_whose_own_database_refuses_it_is_asked_for_ever(catalog: Catalog) -> None:
    assert passes(of_catalog(catalog, ServerError('role "catalog" does not exist')))


@pytest.mark.parametrize("what", ["create_table", "create_namespace"])
@pytest.mark.parametrize("error", [ValueError("a name that exists"), BadRequestError("malformed"), TypeError("no")])
def test_a_table_that_cannot_be_created_as_it_is_stops_the_sink(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, what: str, error: Exception
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(catalog, what, fail)
    with pytest.raises(ConfigError, match=rf"(table|namespace) db.* cannot be created: {error}"):
        Tables(catalog, "iceberg", TableRules()).apply([CREATE])


def test_an_answer_that_is_no_json_may_be_another_one_the_next_time(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise requests.exceptions.JSONDecodeError("no JSON", "<html>", 0)

    monkeypatch.setattr(catalog, "create_table", fail)
    with pytest.raises(UnexpectedError, match="no JSON"):
        Tables(catalog, "iceberg", TableRules()).apply([CREATE])


def evolving(catalog: Catalog, monkeypatch: pytest.MonkeyPatch, error: Exception) -> Tables:
    tables = Tables(catalog, "iceberg", TableRules())
    tables.apply([CREATE])

    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(catalog, "commit_table", fail)
    tables.apply([SchemaChange("db.t", "add", ("v",), "string")])
    return tables


def test_an_answer_to_a_new_schema_that_is_no_json_may_be_another_one_the_next_time(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UnexpectedError, match=r"table db\.t: its schema was not changed \(add v\): .*no JSON"):
        evolving(catalog, monkeypatch, requests.exceptions.JSONDecodeError("no JSON", "<html>", 0))


def test_a_new_schema_that_the_catalog_refuses_as_malformed_is_a_reason_for_the_records_that_need_it(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = evolving(catalog, monkeypatch, BadRequestError("malformed"))
    (refused,) = tables.specs()["db.t"].refused
    assert (refused.kind, refused.path) == ("add", ("v",)) and "malformed" in refused.reason


@pytest.mark.parametrize("code", ["_TRANSPORT", "_TIMED_OUT", "NOT_COORDINATOR", "NOT_ENOUGH_REPLICAS"])
def test_a_broker_that_is_away_is_asked_for_ever(code: str) -> None:
    assert passes(unavailable(KafkaError(getattr(KafkaError, code)), "x"))


@pytest.mark.parametrize("code", ["UNKNOWN", "_STATE", "INVALID_REQUEST"])
def test_a_broker_with_an_odd_answer_is_asked_for_a_bounded_time(code: str) -> None:
    assert isinstance(unavailable(KafkaError(getattr(KafkaError, code)), "x"), UnexpectedError)


@pytest.mark.parametrize(
    ("code", "remedy"),
    [
        ("INVALID_TRANSACTION_TIMEOUT", r"iceberg\.control\.transaction-timeout-ms"),
        ("OFFSET_METADATA_TOO_LARGE", r"offset\.metadata\.max\.bytes"),
        ("GROUP_AUTHORIZATION_FAILED", "privileges"),
    ],
)
def test_a_transaction_that_no_retry_brings_through_stops_the_sink(code: str, remedy: str) -> None:
    found = _verdict(KafkaError(getattr(KafkaError, code)), "control topic 'c'")
    assert isinstance(found, ConfigError)
    assert found.args[0].startswith("control topic 'c': ") and remedy.replace("\\", "") in found.args[0]


REFUSALS = [
    ("MSG_SIZE_TOO_LARGE", "raise its max.message.bytes"),
    ("INVALID_TIMESTAMP", "raise its message.timestamp.after.max.ms"),
    ("INVALID_RECORD", "its cleanup.policy must not be compact"),
    ("POLICY_VIOLATION", "change the brokers' policy"),
    ("TOPIC_AUTHORIZATION_FAILED", "the right to write to it"),
]


@pytest.mark.parametrize(("code", "remedy"), REFUSALS)
def test_a_record_that_its_topic_refuses_stops_the_sink_with_what_to_do(code: str, remedy: str) -> None:
    deliveries = Deliveries()
    record = OutRecord("dead", None, b"v", [], what="the dead letter of topic 's', partition 0, offset 7")
    deliveries.of(OutRecord("dead", None, b"", []))(KafkaError(KafkaError._PURGE_QUEUE), None)
    deliveries.of(record)(KafkaError(getattr(KafkaError, code)), None)
    assert deliveries.refusal is not None
    said = str(deliveries.refusal)
    assert (
        said.startswith("topic 'dead' refuses the dead letter of topic 's', partition 0, offset 7") and remedy in said
    )


def test_a_record_that_its_topic_does_not_take_now_may_be_taken_later() -> None:
    deliveries = Deliveries()
    deliveries.of(OutRecord("dead", None, b"", []))(KafkaError(KafkaError._MSG_TIMED_OUT), None)
    assert deliveries.refusal is None
    assert deliveries.error is not None and passes(unavailable(deliveries.error, "x"))


@pytest.mark.parametrize(
    ("error", "is_away"),
    [
        (redis.ConnectionError("refused"), True),
        (redis.TimeoutError("late"), True),
        (redis.exceptions.BusyLoadingError("loads"), True),
        (redis.exceptions.RedisClusterException("cannot be connected: refused"), True),
        (redis.exceptions.InvalidResponse("Protocol Error: b'HTTP/1.1 400'"), False),
        (redis.ReadOnlyError("a replica"), True),
        (redis.ResponseError("OOM command not allowed when used memory > 'maxmemory'"), True),
        (redis.ResponseError("WRONGTYPE Operation against a key holding the wrong kind of value"), False),
        (redis.ResponseError("unknown command 'EVALSHA'"), False),
    ],
)
def test_redis_is_asked_for_ever_only_if_it_cannot_serve_now(error: Exception, is_away: bool) -> None:
    found = refused(RedisOptions.model_validate({"iceberg.control.redis.url": "redis://localhost"}), error)
    assert isinstance(found, UnavailableError) and passes(found) == is_away


NO_CLUSTER = [
    "Redis Cluster cannot be connected. Please provide at least one reachable node: Cluster mode is not enabled on this"
    " node",
    "A ``db`` querystring option can only be 0 in cluster mode",
]


@pytest.mark.parametrize("said", NO_CLUSTER)
def test_a_redis_that_is_no_cluster_stops_the_sink(said: str) -> None:
    options = RedisOptions.model_validate({"iceberg.control.redis.url": "redis://localhost"})
    found = refused(options, redis.exceptions.RedisClusterException(said))
    assert isinstance(found, ConfigError) and "iceberg.control.redis.cluster" in str(found)


@pytest.mark.parametrize("kind", [redis.ConnectionError, redis.exceptions.RedisClusterException])
def test_a_redis_that_nobody_vouches_for_stops_the_sink(kind: type[Exception]) -> None:
    options = RedisOptions.model_validate({"iceberg.control.redis.url": "rediss://localhost"})
    for asked in (asking_redis, writing_redis):
        with pytest.raises(ConfigError, match="ssl_ca_certs"), asked(options):
            raise kind(UNTRUSTED)


@pytest.mark.parametrize(
    ("error", "is_away"),
    [
        (kazoo.ConnectionLoss, True),
        (kazoo.SessionExpiredError, True),
        (kazoo.MarshallingError, False),
        (kazoo.QuotaExceededError, False),
    ],
)
def test_zookeeper_is_asked_for_ever_only_if_it_cannot_serve_now(error: Callable[[], Exception], is_away: bool) -> None:
    with pytest.raises(UnavailableError) as raised, asking():
        raise error()
    assert passes(raised.value) == is_away
