"""Offsets as text, as snapshots and table properties hold them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TypeVar

from calving.errors import TableTroubleError
from calving.model.offsets import ControlOffsets, SourceOffsets, TopicPartition, parse_topic

T = TypeVar("T")
_SHOWN = 60


def entry_of(entries: Mapping[str, str], name: str, decode: Callable[[str], T], default: str = "{}") -> T:
    """A summary entry or a table property, decoded. Whoever can change the table may have changed it.

    :raises TableTroubleError: it is not what calving writes.
    """
    text = entries.get(name, default)
    try:
        return decode(text)
    except Exception as error:  # whatever is in it
        raise TableTroubleError(
            f"'{name}' in the table's properties, or in the summary of a snapshot, is not what calving writes:"
            f" {text[:_SHOWN]!r}; give the property its former value, or roll the table back to a snapshot before that"
            " one; else remove the property, and run `calving recover FILE`"
        ) from error


def encode_control(offsets: ControlOffsets) -> str:
    """``{"0":3,"1":7}``: the Java sink's form, keys in order."""
    return json.dumps({str(p): offsets[p] for p in sorted(offsets)}, separators=(",", ":"))


def decode_control(text: str) -> dict[int, int]:
    """The next control offset by partition, from the form of ``encode_control``.

    :raises ValueError: the text has another form.
    """
    return {int(p): int(offset) for p, offset in json.loads(text).items()}


def encode_source(offsets: SourceOffsets) -> str:
    """``{"topic":[12,7]}`` for partitions 0 and 1; ``{"topic":{"4":12}}`` if they are not contiguous from 0."""
    topics: dict[str, dict[int, int]] = {}
    for topic, partition, tp in sorted((str(tp.whole), tp.partition, tp) for tp in offsets):
        topics.setdefault(topic, {})[partition] = offsets[tp]
    texts = {
        topic: list(said.values()) if list(said) == list(range(len(said))) else {str(p): at for p, at in said.items()}
        for topic, said in topics.items()
    }
    return json.dumps(texts, separators=(",", ":"))


def decode_source(text: str) -> dict[TopicPartition, int]:
    """Either form; version 0.1.0 only wrote the longer one."""
    return {
        TopicPartition(topic.name, int(p), topic.id): int(offset)
        for topic, said in ((parse_topic(written), said) for written, said in json.loads(text).items())
        for p, offset in (enumerate(said) if isinstance(said, list) else said.items())
    }


def decode_ledgers(text: str) -> list[tuple[list[int], dict[str, str]]]:
    """The ids of snapshots, and the entries of a summary that belong to each of these lists."""
    return [([*map(int, entry.pop("snapshots"))], dict(entry)) for entry in json.loads(text)]


def decode_recovered(text: str) -> tuple[str, dict[int, int]]:
    """The control log at the last recovery, and its end."""
    said = json.loads(text)
    return said["log"], {int(p): int(at) for p, at in said["control"].items()}
