"""Commits that a replacement of their table has discarded.

CREATE OR REPLACE TABLE, in a catalog that swaps the whole metadata, makes a table what it was when the statement began,
with a branch main that begins again. What the sink has committed since is gone without a trace in the table, and the
sequence numbers are given away again. The control log tells: with the marks of tables, that a table went back; with its
publications, which offsets the discarded commits held.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from calving.errors import NothingToAnswerError
from calving.model.events import Envelope
from calving.model.marks import TableMark
from calving.model.offsets import ControlOffsets, Coverage, furthest, intersection, less, text_of, union
from calving.protocol.ledger import Ledger, decode_recovered, entry_of
from calving.protocol.ledger_key import RECOVERED_AT, LedgerKey
from calving.protocol.rollback import Line

SEEN_SEQUENCE = "calving.seen-sequence"


@dataclass(frozen=True, slots=True)
class LogExtent:
    """The control log up to the offsets ``read``, in which publications cover the source offsets ``covered``, also
    those that others have told of. ``entries``: those of the table that are not committed, also parked ones. To get
    these, files are read.
    """

    read: ControlOffsets = field(default_factory=dict)
    covered: Coverage = field(default_factory=dict)
    entries: Callable[[], Iterable[Envelope]] = tuple

    def waiting_from(self, control: ControlOffsets) -> Coverage:
        """The source offsets of the entries at or above these control offsets: the table gets them."""
        waiting: Coverage = {}
        for entry in self.entries():
            if entry.offset >= control.get(entry.partition, 0):
                waiting = union(waiting, {tp: (spans[-1],) for tp, spans in entry.spans.items()})
        return waiting


NO_LOG = LogExtent()


def table_mark(
    key: LedgerKey, uuid: str, number: int, properties: Mapping[str, str], summaries: Iterable[Mapping[str, str]]
) -> TableMark:
    """The mark of a table with this last sequence ``number``, and with these ``summaries`` of snapshots, newest
    first.

    :raises TableTroubleError: the ledger in the table's properties is not what calving writes.
    """
    control = key.stored_control(properties)
    if control is not None:
        # Somebody may have removed the properties by hand, or set former ones: nothing is lost by that.
        control = furthest(control, next(filter(None, map(key.told_control, summaries)), {}))
        # A recovery may begin another control log. Marks of the former one may still be read for a while.
        control = furthest(control, _recovered_control(key, properties))
    return TableMark(uuid, max(number, seen_sequence(key, properties)), control)


def _recovered_control(key: LedgerKey, properties: Mapping[str, str]) -> ControlOffsets:
    """The end that this control log had when the sink was recovered last; empty if it was another log."""
    name = key.of_table(RECOVERED_AT)
    log_id, control = entry_of(properties, name, decode_recovered) if name in properties else ("", {})
    return control if log_id == key.log_id else {}


def seen_sequence(key: LedgerKey, properties: Mapping[str, str]) -> int:
    """The sequence number that the table had before it was replaced; 0 if it was not."""
    return entry_of(properties, key.of_table(SEEN_SEQUENCE), int, "0")


def has_begun_again(key: LedgerKey, line: Line, properties: Mapping[str, str], ledger: Ledger) -> bool:
    """Whether a branch holds no commit of the sink: from its first snapshot on, or by its ``ledger`` if that one has
    expired. What it lacks does not tell: that may be of an earlier rollback, and the whole catalog may have gone back
    since.
    """
    if key.with_former(properties).own(line.snapshots) is not None:
        return False
    return not ledger.source or line.below() is None


def restorable(key: LedgerKey, properties: Mapping[str, str], ledger: Ledger) -> tuple[Ledger, Coverage]:
    """The ledger as if the table lacked only what has snapshots; and the unanswered offsets whose snapshots a
    replacement of the table has discarded.
    """
    discarded = intersection(key.discarded(properties), ledger.unanswered)
    return replace(ledger, gone=less(ledger.gone, discarded)), discarded


def forgotten(key: LedgerKey, properties: Mapping[str, str], ledger: Ledger) -> Coverage:
    """The offsets that are forgotten after the answer ``forget``: not those whose snapshots a replacement has
    discarded, if there are others to answer for.
    """
    rest, _ = restorable(key, properties, ledger)
    return rest.gone if rest.unanswered else ledger.gone


def left_by_forget(
    table: str, key: LedgerKey, line: Line, properties: Mapping[str, str], ledger: Ledger, *, moves: bool
) -> Coverage:
    """The unanswered offsets for which ``forget`` is no answer yet: a table that was replaced by its own rows has what
    it held when the statement began, and lacks what was discarded. ``moves``: the head moves, whatever the table lacks.

    :raises NothingToAnswerError: only such offsets are left, and the command has left them.
    """
    rest, discarded = restorable(key, properties, ledger)
    if discarded and not rest.unanswered and ledger.forgotten and _was_answered_since(key, line, properties):
        if moves:
            return discarded
        raise NothingToAnswerError(
            f"table {table}: what else it lacks was forgotten, so there is nothing to answer, but for"
            f" {text_of(discarded)}: their snapshots are discarded, as it was replaced (CREATE OR REPLACE TABLE); give"
            " `reread` for them, or `forget` with --again"
        )
    return less(ledger.gone, forgotten(key, properties, ledger))


def _was_answered_since(key: LedgerKey, line: Line, properties: Mapping[str, str]) -> bool:
    """Whether the newest answer was given since the table was replaced: a replacement begins the branch again, so the
    head of an older answer is not in it.
    """
    after = key.rollback_note(properties).after
    return after is None or any(each.place.id == after for each in line.snapshots)
