"""A member of a consumer group: how it subscribes to the topics that match a regular expression, what a broker answers
to it, and what an operator can do.
"""

from __future__ import annotations

import re

from confluent_kafka import KafkaError

from calving.errors import CalvingError, ConfigError
from calving.source.client import REFUSED, unavailable

_REMEDIES = {
    **dict.fromkeys(REFUSED, "check the kafka.* settings, and let the sink's user read the group and the topics"),
    KafkaError.INVALID_SESSION_TIMEOUT: "set kafka.session.timeout.ms within the brokers' group.min.session.timeout.ms"
    " and group.max.session.timeout.ms",
    KafkaError.INVALID_GROUP_ID: "correct iceberg.connect.group-id",
    KafkaError.UNSUPPORTED_VERSION: "the brokers lack this protocol: remove kafka.group.protocol",
    KafkaError.UNSUPPORTED_ASSIGNOR: "name one of the brokers' group.consumer.assignors in kafka.group.remote.assignor,"
    " or remove it",
}
"""Answers that no further try changes. A group of clients with another strategy is none of them: they may leave."""
_TOKEN = re.compile(r"\\.|\[\^?\]?[^\]]*\]|\(\?:")
"""What a translation must not look into: an escaped character, or a class of characters."""
_POSIX = {r"\d": "[0-9]", r"\D": "[^0-9]", "(?:": "("}


def subscription(regex: str) -> str:
    """The expression by which librdkafka subscribes to the topics that ``regex`` matches in full. It uses extended
    expressions of POSIX, which know neither ``\\d`` nor groups that only group.
    """
    return f"^({_TOKEN.sub(lambda token: _POSIX.get(token[0], token[0]), regex)})$"


def remedy(fault: KafkaError) -> str | None:
    """What an operator can do; None if the fault may pass."""
    if fault.code() != KafkaError._FATAL:
        return _REMEDIES.get(fault.code())
    # The client tells the cause of a fatal fault only in its text.
    return next((text for code, text in _REMEDIES.items() if KafkaError(code).str() in fault.str()), None)


def failure(fault: KafkaError, group: str, *, has_joined: bool) -> CalvingError:
    """The error to raise. ``has_joined``: whether this process has been a member before. Then its settings were right,
    and another try may help: a broker that restarts may refuse for a moment.
    """
    what = remedy(fault)
    if what is None or has_joined:
        return unavailable(fault, f"group '{group}'")
    return ConfigError(f"group '{group}': {fault.str()}; {what}")
