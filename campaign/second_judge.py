"""The second judge of a campaign: the product's own audit, which shares no code with the checker nor with commits.

Where the checker knows the records and what becomes of each, the audit knows the specification of tables, and reads the
records once more by the sink's settings. Both must agree about the same tables.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from calving.cli.audit import AuditOrder, audit
from calving.settings.load import load

_ALL_FILES = 1_000_000


def findings(config: Path, dropped: Collection[str]) -> list[str]:
    """What the audit finds in the tables of the sink with this file, with all files and records read. The rows of
    tables that somebody has ``dropped`` are not compared with their records: those from before are gone.
    """
    sink = load(config)
    rest = [name for name in sink.keys.tables if name not in dropped]
    orders = [AuditOrder(full=True)] if not dropped else [AuditOrder(sample=_ALL_FILES)]
    orders += [AuditOrder(full=True, tables=rest)] if dropped and rest else []
    judged = [each for order in orders for each in audit(sink, order)]
    return list(dict.fromkeys(f"{found.table}: {each.line()}" for found in judged for each in found.findings))
