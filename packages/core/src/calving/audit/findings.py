"""What an audit finds."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

_LONGEST = 1000


class FindingKind(StrEnum):
    """The part of a table that is wrong."""

    METADATA = "metadata"
    MANIFEST = "manifest"
    SNAPSHOT = "snapshot"
    FILE = "file"
    CONTENT = "content"
    DELETES = "deletes"
    ROW_IDS = "row-ids"
    LEDGER = "ledger"
    RECORDS = "records"


@dataclass(frozen=True, slots=True)
class AuditFinding:
    """One thing that is wrong. ``where`` is a file, or the snapshot whose summary it is about."""

    kind: FindingKind
    where: str
    text: str

    def json(self) -> dict[str, Any]:
        """The finding for programs."""
        return asdict(self)

    def line(self) -> str:
        """The finding for people."""
        return f"{self.kind}: {self.where}: {self.text}"[:_LONGEST]
