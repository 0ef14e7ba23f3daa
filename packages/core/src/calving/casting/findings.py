"""What a conversion finds out about values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pyarrow as pa

from calving.casting.made import MadeTexts
from calving.model.tables import SchemaChange


@dataclass(slots=True)
class Findings:
    """The reason for each bad value, by index, and schema changes for the others.

    ``typed``: the values come with a schema. ``texts``: the texts that are made of nested values.
    """

    reasons: dict[int, str] = field(default_factory=dict)
    changes: list[SchemaChange] = field(default_factory=list)
    typed: bool = False
    texts: MadeTexts = field(default_factory=MadeTexts)

    def take(self, inner: Findings, parents: Callable[[], pa.Array]) -> None:
        """Add the findings about elements of lists; ``parents``: the row of each element."""
        self.changes += inner.changes
        if inner.reasons:
            rows = parents().to_pylist()
            for i, reason in inner.reasons.items():
                self.reasons.setdefault(rows[i], reason)
