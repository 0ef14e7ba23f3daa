"""The second judge of a campaign: the product's own audit, which shares no code with the checker nor with commits.

Where the checker knows the records and what becomes of each, the audit knows the specification of tables, and reads the
records once more by the sink's settings. Both must agree about the same tables.
"""

from __future__ import annotations

from pathlib import Path

from calving.cli.audit import AuditOrder, audit
from calving.settings.load import load


def findings(config: Path) -> list[str]:
    """What the audit finds in the tables of the sink with this file, with all files and records read."""
    order = AuditOrder(full=True)
    return [f"{found.table}: {each.line()}" for found in audit(load(config), order) for each in found.findings]
