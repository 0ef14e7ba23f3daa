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
from calving.errors import ConfigError
from calving.source.client import TIMEOUT, admin_client, patiently, reaching
from calving_kafka.options import KafkaOptions
from calving_kafka.session import KafkaSession

log = logging.getLogger(__name__)

_KEEP = {"retention.ms": "-1", "retention.bytes": "-1"}
"""Kafka must keep all entries: coordinators remove those that are no longer needed (``trimming.py``)."""


class KafkaBackend(Backend):
    name = "kafka"
    settings = KafkaOptions

    def __init__(self, sink: SinkIdentity, settings: BaseModel) -> None:
        self._sink = sink
        self._settings = KafkaOptions.model_validate(settings.model_dump(by_alias=True))

    @patiently
    def provision(self) -> None:
        topic = self._sink.control_topic
        admin = admin_client(self._sink.kafka)
        with reaching(f"control topic '{topic}'"):
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
        for name, value in _KEEP.items():
            if config[name].value != value:
                log.warning(
                    "control topic '%s' has %s = %s: a sink that stops for longer loses uncommitted files;"
                    " run kafka-configs.sh --bootstrap-server %s --alter --entity-type topics --entity-name %s"
                    " --add-config %s=%s",
                    *(topic, name, config[name].value, self._sink.kafka.get("bootstrap.servers", "SERVERS"), topic),
                    *(name, value),
                )

    def open(self, member_id: str) -> Session:
        return KafkaSession(self._sink, self._settings, member_id, *self._control_topic())

    @patiently
    def _control_topic(self) -> tuple[str, int]:
        """The control topic's identity and number of partitions."""
        topic = self._sink.control_topic
        with reaching(f"control topic '{topic}'"):
            admin = admin_client(self._sink.kafka)
            found = admin.describe_topics(TopicCollection([topic]), request_timeout=TIMEOUT)[topic].result()
        return str(found.topic_id), len(found.partitions)
