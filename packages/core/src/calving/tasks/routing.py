"""Finds the tables to which records go."""

from __future__ import annotations

from collections.abc import Sequence

from calving.model.record_path import Routing
from calving.records.arrays import Indices
from calving.records.regex import Regex, template

_KNOWN_AT_MOST = 10_000
"""The most texts of the route field, and topics, whose targets are cached: records may bring any number of them."""
_LONG = 250
"""Longer texts are not cached."""


class Router:
    """Routes like the Java sink's ``SinkWriter``: static routes match in full, and names from records are turned to
    lower case.
    """

    def __init__(self, routing: Routing) -> None:
        self._routing = routing
        self._regexes = [(rule.table, Regex(rule.regex)) for rule in routing.rules if rule.regex]
        self._topic_regex = Regex(routing.topic_regex if routing.topic_regex is not None else "(?s).*")
        self._template = template(routing.topic_pattern or "", self._topic_regex)
        self._by_field: dict[str | None, tuple[str, ...]] = {}
        self._by_topic: dict[str, tuple[str, ...]] = {}

    @property
    def field(self) -> str | None:
        """The dotted path of the route field; None if the topic decides."""
        return self._routing.field

    def by_topic(self, topic: str) -> tuple[str, ...]:
        """The tables of a topic's records if there is no route field. Empty if the records go to no table."""
        targets = self._by_topic.get(topic)
        if targets is None:
            if len(self._by_topic) >= _KNOWN_AT_MOST:
                self._by_topic.clear()
            targets = self._by_topic[topic] = self._topic_targets(topic)
        return targets

    def by_field(self, texts: Sequence[str | None]) -> dict[tuple[str, ...], Indices]:
        """Indices of the field's texts, by the tables to which they lead. The empty tuple has the texts that lead to no
        table.
        """
        known = self._targets_of({*texts})
        rows_of: dict[tuple[str, ...], list[int]] = {}
        for i, text in enumerate(texts):
            rows_of.setdefault(known[text], []).append(i)
        return {targets: range(len(texts)) if len(rows) == len(texts) else rows for targets, rows in rows_of.items()}

    def _targets_of(self, texts: set[str | None]) -> dict[str | None, tuple[str, ...]]:
        """The targets of these texts of the route field."""
        known = {text: self._by_field[text] for text in texts if text in self._by_field}
        news = [text for text in texts if text is not None and text not in known]
        if news:
            matching = [(table, {*regex.matching(news)}) for table, regex in self._regexes]
            for text in news:
                named = [text.lower()] if self._routing.dynamic else [t for t, those in matching if text in those]
                known[text] = tuple(named)
        if len(self._by_field) + len(news) > _KNOWN_AT_MOST:
            self._by_field.clear()
        self._by_field.update((text, known[text]) for text in news[:_KNOWN_AT_MOST] if len(text) < _LONG)
        known[None] = ()
        return known

    def _topic_targets(self, topic: str) -> tuple[str, ...]:
        if self._routing.topic_pattern is None:
            return tuple(rule.table for rule in self._routing.rules)
        name = self._topic_regex.written(topic, self._template)
        return () if name is None else (name.lower(),)
