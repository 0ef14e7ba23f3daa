"""Routes records: finds the tables to which they go, and those that hold them already."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from calving.model.dead_letters import Stage
from calving.model.offsets import Coverage, Span, TopicPartition, decode_coverage
from calving.model.record_path import Routing
from calving.model.table_names import is_table_name, is_table_name_of_record
from calving.model.tables import TableSpec
from calving.records.arrays import Indices, chosen
from calving.records.regex import Regex, template
from calving.source.reading import Block
from calving.tasks.selection import Accounts, Tables

_KNOWN_AT_MOST = 10_000
"""The most texts of the route field, and topics, whose targets are cached: records may bring any number of them."""
_LONG = 250
"""Longer texts are not cached."""
_SHOWN = 100
"""How much of a wrong name is shown, in characters."""


class Router:
    """Routes like the Java sink's ``SinkWriter``: static routes match in full, and names from records are turned to
    lower case, unless they are to stay as they are.
    """

    def __init__(self, routing: Routing, dead_letters: str | None = None) -> None:
        """``dead_letters``: the table of the dead letters, into which no record is routed."""
        self._routing, self._dead_letters = routing, dead_letters
        self._regexes = [(rule.table, Regex(rule.regex)) for rule in routing.rules if rule.regex]
        self._topic_regex = Regex(routing.topic_regex if routing.topic_regex is not None else "(?s).*")
        self._template = template(routing.topic_pattern or "", self._topic_regex)
        self._by_field: dict[str | None, Tables] = {}
        self._by_topic: dict[str, Tables] = {}
        self._named: set[Tables] = set()

    @property
    def field(self) -> str | None:
        """The dotted path of the route field; None if the topic decides."""
        return self._routing.field

    def by_topic(self, topic: str) -> Tables:
        """The tables of a topic's records if there is no route field. Empty if the records go to no table."""
        targets = self._by_topic.get(topic)
        if targets is None:
            if len(self._by_topic) >= _KNOWN_AT_MOST:
                self._by_topic.clear()
            targets = self._by_topic[topic] = self._topic_targets(topic)
        return targets

    def by_field(self, texts: Sequence[str | None]) -> dict[Tables, Indices]:
        """Indices of the field's texts, by the tables to which they lead. The empty tuple has the texts that lead to no
        table.
        """
        known = self._targets_of({*texts})
        rows_of: dict[Tables, list[int]] = {}
        for i, text in enumerate(texts):
            rows_of.setdefault(known[text], []).append(i)
        return {targets: range(len(texts)) if len(rows) == len(texts) else rows for targets, rows in rows_of.items()}

    def _targets_of(self, texts: set[str | None]) -> dict[str | None, Tables]:
        """The targets of these texts of the route field."""
        known = {text: self._by_field[text] for text in texts if text in self._by_field}
        news = [text for text in texts if text is not None and text not in known]
        if news:
            matching = [(table, {*regex.matching(news)}) for table, regex in self._regexes]
            for text in news:
                named = (
                    [self._named_by(text)] if self._routing.dynamic else [t for t, those in matching if text in those]
                )
                known[text] = self._wanted(tuple(named))
        if len(self._by_field) + len(news) > _KNOWN_AT_MOST:
            self._by_field.clear()
        self._by_field.update((text, known[text]) for text in news[:_KNOWN_AT_MOST] if len(text) < _LONG)
        known[None] = ()
        return known

    def _topic_targets(self, topic: str) -> Tables:
        if self._routing.topic_pattern is None:
            return tuple(rule.table for rule in self._routing.rules)
        name = self._topic_regex.written(topic, self._template)
        return () if name is None else self._wanted((self._named_by(name),))

    def _named_by(self, text: str) -> str:
        return text.lower() if self._routing.case == "lower" else text

    def _wanted(self, tables: Tables) -> Tables:
        only = self._routing.only
        return tuple(table for table in tables if table in only) if only else tables

    def are_named(self, tables: Tables, places: Indices, accounts: Accounts) -> bool:
        """Whether records may go to tables of these names. If not, the records at these places of the block are
        bad.
        """
        wrong = self.mistake(tables)
        if wrong is not None:
            by = "route field" if self.field is not None else "topic"
            accounts.reject(places, Stage.ROUTING, "TableNameError", f"its {by} names {wrong}")
        return wrong is None

    def mistake(self, tables: Tables) -> str | None:
        """Why records may not go to tables of these names; None if they may."""
        if tables in self._named:
            return None
        wrong = next(filter(None, map(self._mistake, tables)), None)
        if wrong is None:
            if len(self._named) >= _KNOWN_AT_MOST:
                self._named.clear()
            self._named.add(tables)
        return wrong

    def _mistake(self, table: str) -> str | None:
        """Why no record may go to a table of this name; None if records may."""
        is_name = is_table_name_of_record if self._routing.is_free else is_table_name
        if not is_name(table):
            return f"no table: '{table[:_SHOWN]}' is not a name with its namespace, such as db.events"
        # Some catalogs have all names in lower case.
        if self._dead_letters is not None and table.lower() == self._dead_letters.lower():
            return f"the table of the dead letters, {self._dead_letters} (errors.deadletterqueue.table)"
        return None

    def unrouted(self, topic: str, places: Indices, accounts: Accounts) -> None:
        """The records at these places of the block go to no table."""
        if not places:
            return
        if self._routing.unrouted == "skip":
            accounts.filtered["unrouted"] += len(places)
            return
        by = f"'{self.field}'" if self.field is not None else f"topic '{topic}'"
        fatal = self._routing.unrouted == "fail"
        advice = "; correct the routes, or set iceberg.tables.on-unrouted = skip or dead-letter" if fatal else ""
        accounts.reject(places, Stage.ROUTING, "UnroutedError", f"no route takes its {by}{advice}", fatal=fatal)


class HeldOffsets:
    """The records that tables hold already, by their source offsets."""

    def __init__(self, tables: Mapping[str, TableSpec]) -> None:
        coverage_of = {name: decode_coverage(table.held_json) for name, table in tables.items()}
        self.coverage: Mapping[str, Coverage] = {name: each for name, each in coverage_of.items() if each}

    def lacking(self, block: Block, tables: Tables, places: Indices) -> Mapping[Tables, Indices] | None:
        """Rows of the block's records at these places, by the tables that do not hold them; None if no table holds any
        of them.
        """
        held_by = {table: self.by(table, block, places) for table in tables if table in self.coverage}
        if not any(held_by.values()):
            return None
        rows_of: dict[Tables, list[int]] = {}
        for row, place in enumerate(places):
            lacking = tuple(table for table in tables if place not in held_by.get(table, ()))
            rows_of.setdefault(lacking, []).append(row)
        return rows_of

    def by(self, table: str, block: Block, places: Indices) -> frozenset[int]:
        """Those of the block's records at these places that the table holds."""
        source = block.source
        spans = self.coverage.get(table, {}).get(TopicPartition(source.topic, source.partition), ())
        if not any(span.start < source.end and source.start < span.end for span in spans):
            return frozenset()
        offsets = chosen(block.offsets, places).to_pylist()
        return frozenset(place for place, offset in zip(places, offsets, strict=True) if _covers(spans, offset))


def _covers(spans: Iterable[Span], offset: int) -> bool:
    return any(span.start <= offset < span.end for span in spans)
