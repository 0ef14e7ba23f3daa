"""Checks before a start in the place of a Java sink."""

from __future__ import annotations

from collections.abc import Mapping

from calving.errors import DataLossError
from calving.model.offsets import SourceOffsets
from calving.protocol.ledger import Ledger
from calving.protocol.takeover import java_changes_no_rows, tabular_runs
from calving.settings.load import Sink
from calving.source.interface import Source


def refuse_a_running_connector(sink: Sink, topics: Source) -> None:
    """:raises DataLossError: tasks of Tabular's sink run; they and the workers would read the same partitions. Or the
    sink changes rows, and tasks of the Java sink run; their files come in no order.
    """
    group = sink.connector_group
    if group is not None and (running := topics.members(group)):
        raise DataLossError(tabular_runs(sink.keys.name, group, len(running)))
    if sink.changes_rows and (refusal := java_changes_no_rows(sink.group, topics.members(sink.group))) is not None:
        raise DataLossError(refusal)


def refuse_lost_positions(sink: Sink, ledgers: Mapping[str, Ledger], stored: SourceOffsets) -> None:
    """:raises DataLossError: no positions are stored, but the Java sink has committed to a table. calving cannot
    recover from its ledgers, because they hold no source offsets.
    """
    for name, ledger in ledgers.items():
        if ledger.control and not (ledger.source or stored):
            raise DataLossError(
                f"group {sink.group} has no stored positions, but the Java sink has committed to table {name} in its"
                " name: starting from the beginning would double its records; set the positions with"
                " kafka-consumer-groups.sh --reset-offsets (`calving takeover FILE` shows what is known of them)"
            )
