"""Offsets as text, as snapshots and table properties hold them."""

from __future__ import annotations

import json

from calving.model.offsets import ControlOffsets, SourceOffsets, TopicPartition, parse_topic


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
    found = {
        topic: list(said.values()) if list(said) == list(range(len(said))) else {str(p): at for p, at in said.items()}
        for topic, said in topics.items()
    }
    return json.dumps(found, separators=(",", ":"))


def decode_source(text: str) -> dict[TopicPartition, int]:
    """Either form; version 0.1.0 only wrote the longer one."""
    return {
        TopicPartition(topic.name, int(p), topic.id): int(offset)
        for topic, said in ((parse_topic(written), said) for written, said in json.loads(text).items())
        for p, offset in (enumerate(said) if isinstance(said, list) else said.items())
    }
