"""The keys of one sink."""

from __future__ import annotations

from dataclasses import dataclass

from calving.backend import SinkIdentity
from calving_redis.options import RedisOptions


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys, all in one hash slot."""

    state: str
    positions: str
    topic_ids: str
    log: str
    lease: str

    @staticmethod
    def of(options: RedisOptions, sink: SinkIdentity) -> Keys:
        base = f"{options.prefix}{{{sink.control_topic}:{sink.group}}}:"
        return Keys(f"{base}state", f"{base}positions", f"{base}topic-ids", f"{base}log", f"{base}lease")
