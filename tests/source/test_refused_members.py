"""A member that a consumer group does not take."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

import pytest
from confluent_kafka import Consumer, KafkaError

from calving.errors import CalvingError, ConfigError, UnexpectedError
from calving.source.group import failure
from calving.source.interface import Group
from calving.source.kafka import Topics
from harness.topic import Topic
from tests.kafka.sinks import Listener, wait

BELOW_THE_BROKERS = "500"


@contextmanager
def joining(t: Topic, **properties: str) -> Iterator[Group]:
    settings = {"bootstrap.servers": t.servers} | {key.replace("_", "."): text for key, text in properties.items()}
    with closing(Topics(settings, [t.name], None).join(t.name)) as group:
        yield group


def refusal(group: Group) -> CalvingError:
    listener = Listener()
    with pytest.raises(CalvingError) as raised:
        wait(lambda: bool(listener.held), lambda: group.poll(0.1, listener), 60)
    return raised.value


def test_a_session_shorter_than_the_brokers_allow_is_refused_with_both_keys(topic: Callable[..., Topic]) -> None:
    t = topic()
    with joining(t, session_timeout_ms=BELOW_THE_BROKERS) as group:
        error = refusal(group)
    assert isinstance(error, ConfigError)
    assert str(error) == (
        f"group '{t.name}': JoinGroup failed: Broker: Invalid session timeout; set kafka.session.timeout.ms within the"
        " brokers' group.min.session.timeout.ms and group.max.session.timeout.ms"
    )


def test_a_member_waits_until_clients_with_another_strategy_have_left_and_says_so(
    topic: Callable[..., Topic], caplog: pytest.LogCaptureFixture
) -> None:
    t, listener = topic(), Listener()
    strategy = {"group.id": t.name, "partition.assignment.strategy": "range"}
    with closing(Consumer({"bootstrap.servers": t.servers, **strategy})) as other:
        other.subscribe([t.name])
        wait(lambda: bool(other.assignment()), lambda: other.poll(0.1))
        # A member joins as soon as it is made: made earlier, it could be the one whose strategy the group has.
        with joining(t) as group:
            wait(lambda: "Inconsistent group protocol" in caplog.text, lambda: group.poll(0.1, listener), 60)
            other.close()
            wait(lambda: bool(listener.held), lambda: group.poll(0.1, listener), 60)


def test_an_assignor_that_the_brokers_lack_is_refused(topic: Callable[..., Topic]) -> None:
    t = topic()
    with joining(t, group_protocol="consumer", group_remote_assignor="nobody") as group:
        error = refusal(group)
    assert isinstance(error, ConfigError) and "kafka.group.remote.assignor" in str(error)


def test_a_broker_that_refuses_a_member_that_it_once_took_is_asked_again_but_not_for_ever() -> None:
    denied = KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED)
    assert isinstance(failure(denied, "g", has_joined=False), ConfigError)
    assert isinstance(failure(denied, "g", has_joined=True), UnexpectedError)


def test_a_fatal_fault_that_nobody_knows_is_not_retried_for_ever() -> None:
    fenced = KafkaError(KafkaError._FATAL, "Fatal error: Broker: Static consumer fenced", fatal=True)
    assert isinstance(failure(fenced, "g", has_joined=False), UnexpectedError)


def test_a_protocol_that_the_brokers_lack_is_refused() -> None:
    old = KafkaError(KafkaError._FATAL, f"Fatal error: {KafkaError(KafkaError.UNSUPPORTED_VERSION).str()}", fatal=True)
    assert "remove kafka.group.protocol" in str(failure(old, "g", has_joined=False))
