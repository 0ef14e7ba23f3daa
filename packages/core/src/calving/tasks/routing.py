"""Finds the tables to which records go."""

from __future__ import annotations

import re
from collections.abc import Sequence

from calving.model.record_path import Routing
from calving.records.arrays import Indices

_KNOWN_AT_MOST = 10_000
"""The most texts of the route field, and topics, whose targets are cached: records may bring any number of them."""


def is_table_name(name: str) -> bool:
    """Whether a name from a record can be the name of a table: it needs a namespace and a name, and no part may be
    empty.
    """
    parts = name.split(".")
    return len(parts) > 1 and all(part and part == part.strip() and part.isprintable() for part in parts)


class Router:
    """Routes like the Java sink's ``SinkWriter``: static routes match in full, and names from records are turned to
    lower case.
    """

    def __init__(self, routing: Routing) -> None:
        self._routing = routing
        self._regexes = [(rule.table, re.compile(rule.regex) if rule.regex else None) for rule in routing.rules]
        self._topic_regex = re.compile(routing.topic_regex) if routing.topic_regex else None
        self._by_field: dict[str | None, tuple[str, ...]] = {}
        self._by_topic: dict[str, tuple[str, ...]] = {}

    @property
    def field(self) -> str | None:
        """The dotted path of the route field; None if the topic decides."""
        return self._routing.field

    def by_topic(self, topic: str) -> tuple[str, ...]:
        """The tables of a topic's records if there is no route field. Empty if the records go to no table."""
        found = self._by_topic.get(topic)
        if found is None:
            if len(self._by_topic) >= _KNOWN_AT_MOST:
                self._by_topic.clear()
            found = self._by_topic[topic] = self._topic_targets(topic)
        return found

    def by_field(self, texts: Sequence[str | None]) -> dict[tuple[str, ...], Indices]:
        """Indices of the field's texts, by the tables to which they lead. The empty tuple has the texts that lead to no
        table.
        """
        found: dict[tuple[str, ...], list[int]] = {}
        for i, text in enumerate(texts):
            targets = self._by_field.get(text)
            if targets is None:
                if len(self._by_field) >= _KNOWN_AT_MOST:
                    self._by_field.clear()
                targets = self._by_field[text] = self._field_targets(text)
            found.setdefault(targets, []).append(i)
        return {targets: range(len(texts)) if len(rows) == len(texts) else rows for targets, rows in found.items()}

    def _topic_targets(self, topic: str) -> tuple[str, ...]:
        if self._routing.topic_pattern is None:
            return tuple(rule.table for rule in self._routing.rules)
        groups: dict[str, str] = {}
        if self._topic_regex is not None:
            match = self._topic_regex.fullmatch(topic)
            if match is None:
                return ()
            groups = {str(i): text or "" for i, text in enumerate(match.groups(), 1)}
            groups |= {name: text or "" for name, text in match.groupdict().items()}
        values = {"topic": topic, **groups}
        name = re.sub(r"\{(\w+)\}", lambda m: values.get(m.group(1), m.group(0)), self._routing.topic_pattern)
        return (name.lower(),)

    def _field_targets(self, text: str | None) -> tuple[str, ...]:
        if text is None:
            return ()
        if self._routing.dynamic:
            return (text.lower(),)
        return tuple(table for table, regex in self._regexes if regex is not None and regex.fullmatch(text))
