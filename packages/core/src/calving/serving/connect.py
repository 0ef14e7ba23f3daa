"""A status in the form of Kafka Connect's REST interface, for Kafka Connect's clients and consoles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from calving.errors import ConfigError
from calving.model.offsets import SourceOffsets, TopicPartition
from calving.model.text import natural
from calving.serving.bodies import is_text
from calving.settings.keys import SinkKeys
from calving.settings.load import Sink, parse
from calving.status.health import Reason, reasons
from calving.status.health import health as health_of
from calving.status.remedies import REMEDIES, section
from calving.status.values import Status

Json = dict[str, Any]
PLUGIN = "calving"


def worker(status: Status) -> Json:
    """The worker. The cluster's id is empty until it is known."""
    return {"version": status.sink.version, "commit": "", "kafka_cluster_id": status.worker.cluster}


def info(sink: Sink, status: Status) -> Json:
    """The connector: its configuration with secrets masked."""
    name = sink.keys.name
    tasks = [] if status.worker.stopped else [{"connector": name, "task": 0}]
    return {"name": name, "config": dict(sink.given), "tasks": tasks, "type": "sink"}


def state(status: Status, stopped: Mapping[str, float], worker_id: str, now: float) -> Json:
    """The state of the connector and of its task. Both stand for this worker."""
    worker = status.worker
    known = {"STOPPED": worker.stopped, "PAUSED": worker.paused, "FAILED": bool(stopped), "RUNNING": True}
    own: Json = {"state": next(name for name, is_so in known.items() if is_so), "worker_id": worker_id}
    task: Json = {"id": 0, **own}
    if stopped:
        task["trace"] = "; ".join(f"the loop of the {loop} stands still for {s:.0f} s" for loop, s in stopped.items())
    elif worker.error is not None and not worker.joined:
        task |= {"state": "RESTARTING", "trace": worker.error}
    return {
        "name": status.sink.name,
        "connector": own,
        "tasks": [] if worker.stopped else [task],
        "type": "sink",
        "calving": {**health(status, now), "leader": leader(status)},
    }


def health(status: Status, now: float) -> Json:
    return {
        "health": health_of(status, now),
        "reasons": [explained(r) for r in reasons(status, now)],
    }


def explained(reason: Reason) -> Json:
    """A reason with what it means and what to do next."""
    return {"cause": reason.cause.value, "subject": reason.subject, "text": reason.text, **remedy(reason.cause)}


def remedy(reason: str) -> Json:
    """What a reason means, the next command, and the section of the manual."""
    known = REMEDIES[reason]
    return {"meaning": known.meaning, "command": known.command, "help": section(reason)}


def leader(status: Status) -> Json:
    """The leader according to the control log; nulls if unknown."""
    known = status.log.leader
    if known is None:
        return {"member": status.sink.member if status.worker.leads else None, "host": None, "url": None}
    return {"member": known.member, "host": known.host, "url": known.url or None}


def not_leading(status: Status) -> str:
    """A text on why this worker begins no commit, and on which worker does."""
    known = status.log.leader
    if known is None:
        return "this worker does not lead, and the leader is unknown: there is none, or it has an older version"
    where = f"at {known.url}" if known.url else "which has no status server"
    return f"this worker does not lead; worker {known.member} on {known.host} does, {where}"


def offsets(status: Status) -> Json:
    """Next offsets to read, of the partitions that this worker holds."""
    return offsets_of({tp: partition.position for tp, partition in status.worker.partitions.items()})


def offsets_of(positions: SourceOffsets) -> Json:
    """Next offsets to read, of a sink connector."""
    return {
        "offsets": [
            {
                "partition": {"kafka_topic": tp.topic, "kafka_partition": tp.partition},
                "offset": {"kafka_offset": at},
            }
            for tp, at in sorted(positions.items())
        ]
    }


def altered(body: object) -> dict[TopicPartition, int | None]:
    """The offsets in the body of a request to change some; None for a partition whose offset is to be reset.

    :raises ValueError: the body has another form.
    """
    given = body.get("offsets") if isinstance(body, dict) else None
    if not isinstance(given, list) or not given:
        raise ValueError("the body is no object with a list 'offsets' that has items")
    wanted: dict[TopicPartition, int | None] = {}
    for each in given:
        tp, at = _altered(each)
        if tp in wanted:
            raise ValueError(f"partition {tp.partition} of topic '{tp.topic}' stands twice")
        wanted[tp] = at
    return wanted


def _altered(each: object) -> tuple[TopicPartition, int | None]:
    partition, offset = (each.get("partition"), each.get("offset")) if isinstance(each, dict) else (None, None)
    if not isinstance(partition, dict) or not isinstance(offset, dict | None):
        raise ValueError("each of the offsets has a 'partition', an object, and an 'offset', an object or null")
    topic, number = partition.get("kafka_topic"), _whole(partition.get("kafka_partition"))
    at = None if offset is None else _whole(offset.get("kafka_offset"))
    if not isinstance(topic, str) or number is None or (at is None and offset is not None):
        raise ValueError("a partition has 'kafka_topic' and 'kafka_partition', and an offset 'kafka_offset'")
    if not is_text(topic):
        raise ValueError("a topic has half of a surrogate pair in its name, which is no character")
    return TopicPartition(topic, number), at


def _whole(value: object) -> int | None:
    """A number that is none below 0, also as text: Kafka Connect takes both."""
    return natural(str(value)) if isinstance(value, int | str) and not isinstance(value, bool) else None


def plugins(version: str) -> Sequence[Json]:
    return [{"class": PLUGIN, "type": "sink", "version": version}]


def validated(config: Mapping[str, str]) -> Json:
    """The errors of a configuration, by key. Contacts no service, and resolves no secret, which an error might show."""
    error: str | None = None
    try:
        parse(config, resolved=False)
    except ConfigError as found:
        error = str(found)
    wrong = None if error is None else _key_of(error, config)
    names = dict.fromkeys([*config, *([wrong] if wrong else [])])
    return {
        "name": PLUGIN,
        "error_count": 0 if error is None else 1,
        "groups": [],
        "configs": [_config(name, [error] if name == wrong and error else []) for name in names],
    }


def _key_of(error: str, config: Mapping[str, str]) -> str:
    """The first key that an error names. If there is none, ``name``, which every configuration has."""
    known = {field.alias for field in SinkKeys.model_fields.values() if field.alias} | config.keys()
    named = [key for key in known if key in error and key != "name"]
    return min(named, key=lambda key: (error.index(key), -len(key)), default="name")


_FIELDS = {field.alias: field for field in SinkKeys.model_fields.values()}


def _config(name: str, errors: list[str]) -> Json:
    field = _FIELDS.get(name)
    definition = {
        "name": name,
        "type": "STRING",
        "required": field is not None and field.is_required(),
        "default_value": None,
        "importance": "MEDIUM",
        "documentation": (field.description if field is not None else None) or "",
        "group": None,
        "width": "MEDIUM",
        "display_name": name,
        "dependents": [],
        "order": -1,
    }
    value = {"name": name, "value": None, "recommended_values": [], "errors": errors, "visible": True}
    return {"definition": definition, "value": value}
