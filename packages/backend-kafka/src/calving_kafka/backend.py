"""The reference backend: a control topic, transactions, and the consumer group's generation as the fence.

A publication is one transaction of events and source offsets, sent with the live member's metadata: the broker refuses
it once the member's generation is out of date (KIP-447). The broker does accept metadata without a member, and offsets
below the stored ones. So the backend checks both; it reads the stored positions under the same claim that the
transaction carries.
"""

from __future__ import annotations

import logging

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import ConfigResource, NewTopic, ResourceType
from pydantic import BaseModel

from calving.backend import Backend, Session, SinkIdentity
from calving.errors import ConfigError, DataLossError, UnavailableError
from calving.source.client import TIMEOUT, admin_client, patiently, reaching
from calving_kafka.options import KafkaOptions
from calving_kafka.session import KafkaSession

log = logging.getLogger(__name__)

_KEEP = {"retention.ms": "-1", "retention.bytes": "-1"}
"""Kafka must keep all entries: coordinators remove those that are no longer needed (``trimming.py``)."""

_DELETED = 3
"""A control topic that was missed so often in a row, for some seconds each time, was deleted."""


class KafkaBackend(Backend):
    name = "kafka"
    settings = KafkaOptions

    def __init__(self, sink: SinkIdentity, settings: BaseModel) -> None:
        self._sink = sink
        self._settings = KafkaOptions.model_validate(settings.model_dump(by_alias=True))
        self._provisioned = False
        self._missed = 0
        """How often in a row the control topic was not there, though this process has seen it."""

    @patiently
    def provision(self) -> None:
        topic = self._sink.control_topic
        admin = admin_client(self._sink.kafka)
        with reaching(f"control topic '{topic}'", self._sink.kafka):
            future = admin.create_topics(
                [NewTopic(topic, self._settings.partitions, self._settings.replication_factor, config=_KEEP)],
                request_timeout=TIMEOUT,
            )[topic]
            try:
                future.result()
            except KafkaException as error:
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise
            resource = ConfigResource(ResourceType.TOPIC, topic)
            config = admin.describe_configs([resource], request_timeout=TIMEOUT)[resource].result()
        if "compact" in config["cleanup.policy"].value:
            raise ConfigError(
                f"control topic '{topic}' is compacted, which removes events that are not committed yet:"
                " set its cleanup.policy to delete"
            )
        for name, wanted in _KEEP.items():
            if config[name].value != wanted:
                log.warning(
                    "control topic '%s' has %s = %s: a sink that stops for longer loses uncommitted files;"
                    " run kafka-configs.sh --bootstrap-server %s --alter --entity-type topics --entity-name %s"
                    " --add-config %s=%s",
                    *(topic, name, config[name].value, self._sink.kafka.get("bootstrap.servers", "SERVERS"), topic),
                    *(name, wanted),
                )
        self._provisioned = True

    def open(self, member_id: str) -> Session:
        try:
            topic = self._control_topic()
        except UnavailableError as error:
            self._check_deletion(error)
            raise
        self._missed = 0
        return KafkaSession(self._sink, self._settings, member_id, *topic)

    def _check_deletion(self, error: UnavailableError) -> None:
        """:raises DataLossError: the control topic was there, and brokers say again and again that it is not."""
        cause = error.__cause__.args[0] if isinstance(error.__cause__, KafkaException) else None
        if not isinstance(cause, KafkaError) or cause.code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
            return
        self._missed += self._provisioned
        if self._missed >= _DELETED:
            raise DataLossError(
                f"control topic '{self._sink.control_topic}' was deleted while the sink ran: files that were published"
                " there and not committed are in no table; stop all workers and run `calving recover FILE`"
            ) from error

    @patiently
    def _control_topic(self) -> tuple[str, int]:
        """The control topic's identity and number of partitions."""
        topic = self._sink.control_topic
        with reaching(f"control topic '{topic}'", self._sink.kafka):
            admin = admin_client(self._sink.kafka)
            description = admin.describe_topics(TopicCollection([topic]), request_timeout=TIMEOUT)[topic].result()
        return str(description.topic_id), len(description.partitions)
