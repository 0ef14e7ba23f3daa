"""Which records go to which tables."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from calving.data.spec import Routing


@dataclass(slots=True)
class Routed:
    """Record positions in a block, by table; what goes nowhere, by cause."""

    tables: dict[str, Sequence[int] | None]
    """None stands for every record of the block."""
    filtered: dict[str, int]
    routed: int
    """Records that go to at least one table."""
    first_unrouted: int | None = None


FieldValues = Callable[[str], Sequence[str | None]]
"""The text of a (dotted) field for every record of the block."""


class Router:
    """As the Java sink's ``SinkWriter``: full match for static routes, lower case for dynamic names."""

    def __init__(self, routing: Routing) -> None:
        self._routing = routing
        self._regexes = [(rule.table, re.compile(rule.regex) if rule.regex else None) for rule in routing.rules]
        self._known: dict[str | None, tuple[str, ...]] = {}

    def route(self, records: int, field_values: FieldValues) -> Routed:
        """Route ``records`` records."""
        if self._routing.field is None:
            return Routed({rule.table: None for rule in self._routing.rules}, {}, records)
        tables: dict[str, list[int]] = {}
        filtered: dict[str, int] = {}
        routed = 0
        first_unrouted: int | None = None
        for i, value in enumerate(field_values(self._routing.field)):
            targets = self._known.get(value)
            if targets is None:
                targets = self._known.setdefault(value, self._targets(value))
            for table in targets:
                tables.setdefault(table, []).append(i)
            if targets:
                routed += 1
            else:
                filtered["unrouted"] = filtered.get("unrouted", 0) + 1
                first_unrouted = i if first_unrouted is None else first_unrouted
        return Routed(dict(tables), filtered, routed, first_unrouted)

    def _targets(self, value: str | None) -> tuple[str, ...]:
        if value is None:
            return ()
        if self._routing.dynamic:
            return (value.lower(),)
        return tuple(table for table, regex in self._regexes if regex is not None and regex.fullmatch(value))
