"""What a recovery writes into the tables, in this order: see ``recover``."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from calving.backend.interface import ControlLog
from calving.errors import ConfigError
from calving.iceberg.catalog import table_id
from calving.iceberg.history import LoadedTable
from calving.iceberg.summary import engine
from calving.iceberg.target import IcebergTarget
from calving.model.offsets import Coverage, encode_coverage, present
from calving.model.text import listed
from calving.protocol import moves
from calving.protocol.forms import FORM, mark, table_form
from calving.protocol.ledger import Ledger
from calving.protocol.ledger_key import LOG_ID, LedgerKey
from calving.protocol.ledger_updates import brought_back, of_both_names, taken_over
from calving.protocol.recovery import AWAITED_OFFSETS, Recovery, successor
from calving.protocol.rollback import Marks
from calving.runtime.names import check_not_left
from calving.runtime.preflight import TableRecord, held, ledger_key, own_tables, owner_of, reading
from calving.runtime.routed import routed_tables
from calving.settings.load import Sink


def said_by_tables(
    catalog: Catalog, sink: Sink, log_id: str, topics: Collection[str], marks: Marks
) -> Iterator[tuple[str, TableRecord]]:
    """What the tables that hold records of the sink, or should, say of sinks. ``topics``: the sink's."""
    routed = routed_tables(catalog, sink, topics).all()
    # The catalog may show a table as it was before the sink's first commit: then only the log knows it.
    marked = [".".join(table) for table in marks.known] if sink.keys.routes_freely else []
    for name, record in held(catalog, sink, log_id, [*dict.fromkeys((*own_tables(sink), *routed, *marked))]):
        if record.others or gets_records(sink, name, record, marks):
            yield name, record


def gets_records(sink: Sink, name: str, record: TableRecord, marks: Marks) -> bool:
    """Whether a table holds records of the sink, or is one of its tables, or held some by the ``marks`` of the control
    log, or since an earlier recovery waits for them.
    """
    if record.ledger.source or record.ledger.gone or record.awaited or name in own_tables(sink):
        return True
    return record.mark is not None and bool(marks.older({table_id(name): record.mark}))


def strangers(catalog: Catalog, sink: Sink, found: Iterable[tuple[str, str]]) -> set[str]:
    """Of these tables and names of sinks, the names that the table's ledger of this sink does not count as former ones
    of its own.
    """

    def known(name: str) -> Collection[str]:
        properties = catalog.load_table(table_id(name)).properties
        return dict(ledger_key(sink, "", name).with_former(properties).former)

    return {owner for name, owner in set(found) if owner not in known(name)}


def mind_other_names(sink: Sink, others: Collection[str]) -> None:
    if others:
        raise ConfigError(
            f"records that would be read again are in the tables under the name {', '.join(sorted(others))}: if that is"
            f" a former name of {owner_of(sink)}, run `calving recover FILE --from {min(others)}`; if it is another"
            f" sink, set iceberg.control.other-sinks = {','.join(sorted(others))}"
        )


def both_keys(key: LedgerKey, former: str | None) -> list[LedgerKey]:
    """The keys of a sink under its present name, and under a ``former`` one."""
    return [key, *([key.named(former)] if former is not None else [])]


def mind_successors(catalog: Catalog, sink: Sink, names: Iterable[str], former: str | None) -> None:
    """:raises DataLossError: a table was taken over from the name from which the sink goes on now, by a third one."""
    for name in names:
        key = both_keys(ledger_key(sink, "", name), former)[-1]
        table = catalog.load_table(table_id(name))
        with reading(table):
            later = successor(key, table.metadata.properties)
        check_not_left(key.owner, name, later if later != owner_of(sink) else None)


def unfinished_move(
    catalog: Catalog, sink: Sink, names: Iterable[str], identities: Mapping[str, str]
) -> moves.PositionMove | None:
    """The move of positions that an interrupted `calving offsets` has begun with one of these tables, as the one says
    that knows most of it.
    """
    found: moves.PositionMove | None = None
    for name in sorted(names):
        key, table = ledger_key(sink, "", name), catalog.load_table(table_id(name))
        with reading(table):
            move = moves.unfinished(key, table.metadata.properties, identities)
        if move is not None and (found is None or move.rewound):
            found = move
    return found


def mind_moves(catalog: Catalog, sink: Sink, names: Iterable[str], identities: Mapping[str, str]) -> None:
    """:raises ConfigError: an interrupted `calving offsets` has begun to move positions, and has to end first."""
    if (move := unfinished_move(catalog, sink, names, identities)) is not None:
        raise ConfigError(moves.interrupted(move))


def ledger_of_both(key: LedgerKey, table: Table, former: str) -> Ledger:
    """The ledger of a sink that has got its name after a ``former`` one.

    :raises ConfigError: somebody else, or a later version, has changed it, and it cannot be read.
    :raises UnavailableError: a file of the table cannot be read.
    """
    with reading(table):
        return of_both_names(key, LoadedTable(table, key.branch).line, table.metadata.properties, former)


def mind_two_sinks(sink: Sink, name: str, record: TableRecord, former: str, identities: Mapping[str, str]) -> None:
    """:raises ConfigError: under its present name the sink has committed records of other topics to the table than
    under the ``former`` one. No snapshot has the offsets of both.
    """
    own = {tp.topic for tp in record.ledger.source}
    theirs = {tp.topic for tp, offset in present(record.others[former], identities).items() if offset}
    if own and (other := sorted((theirs & identities.keys()) - own)):
        raise ConfigError(
            f"--from {former}: table {name} holds records of {listed(other)} from there, and other records that"
            f" {owner_of(sink)} has committed: that is no former name of this sink, and two sinks do not become one; to"
            f" go on with its topics here, store its positions in group {sink.group}, and set"
            f" iceberg.control.other-sinks = {former}"
        )


def supersede(
    catalog: Catalog,
    sink: Sink,
    names: Iterable[str],
    control: ControlLog,
    former: str | None,
    again: Collection[str],
) -> None:
    """The first step: from here on, a coordinator that still runs cannot commit. The plan could not take such a commit
    into account. A new coordinator cannot commit either until the recovery has ended, and one of the ``former`` name
    not before a recovery gives the tables back to that name.
    """
    for name in names:
        key = ledger_key(sink, control.identity, name)
        target = IcebergTarget(catalog, table_id(name), key.branch, key, engine())
        # This also moves the table's sequence number, so the number no longer shows an older state afterwards.
        # No control log has such an identity. The present one may keep its own, and begin behind ``control.end``.
        said = key.recovered_at("", control.end, again=name in again)
        said |= key.named(former).recovered_at(key.owner, {}) if former is not None else {}
        target.supersede(partial(_unless_moved, key, said))


def _unless_moved(key: LedgerKey, said: Mapping[str, str], properties: Mapping[str, str]) -> Mapping[str, str]:
    if (move := moves.unfinished(key, properties, {})) is not None:
        raise ConfigError(moves.interrupted(move))
    return said


def leave_out(catalog: Catalog, sink: Sink, plan: Recovery, identities: Mapping[str, str]) -> None:
    """Store in each table the offsets to skip, which have no effect until the positions go back, and those that it
    waits for.
    """
    for name, coverage in plan.held.items():
        key, table = ledger_key(sink, "", name), catalog.load_table(table_id(name))
        said = {key.holding: coverage}
        if name in plan.awaited or key.of_table(AWAITED_OFFSETS) in table.properties:
            said[key.of_table(AWAITED_OFFSETS)] = plan.awaited.get(name, {})
        with table.transaction() as change:
            change.set_properties({name_of: _text(spans, identities) for name_of, spans in said.items()})


def _text(coverage: Coverage, identities: Mapping[str, str]) -> str:
    return encode_coverage(moves.with_ids(coverage, identities))


def mark_recovered(
    catalog: Catalog,
    sink: Sink,
    name: str,
    control: ControlLog,
    former: str | None,
    *,
    again: bool,
    forgotten: bool,
) -> None:
    """Mark the table as recovered with this log. This is the last step, because a table of another log is not written
    to. Rolled back tables come last of all: while one of them waits for its answer, the command can be run again. The
    log may have a new identity by now. What the ``former`` sink wrote keeps its form.
    """
    key = ledger_key(sink, control.identity, name)
    table = catalog.load_table(table_id(name))
    changed = key.recovered_at(control.identity, control.end)
    line = LoadedTable(table, key.branch).line
    with reading(table):
        if former is not None:
            changed |= taken_over(key, line, table.properties, former, _last_number(table))
        properties = {**table.properties, **changed}
        ledger = key.read(line, properties)
    if again and (ledger.gone or ledger.doubt is not None):
        head = line.head
        wanted = replace(ledger, forgotten={}) if forgotten else ledger
        changed |= brought_back(key, wanted, properties, head.place if head is not None else None)
    known = table.properties.get(key.of_table(LOG_ID))
    if known != control.identity and (known is not None or former is not None):
        changed |= {key.of_table(LOG_ID): control.identity, key.of_table(key.offsets): "{}"}
    if former is not None:
        written = table_form(table.properties, key.named(former).of_table(FORM))
        changed |= mark(table.properties, key.of_table(FORM), written)
    with table.transaction() as change:
        change.set_properties(changed)


def _last_number(table: Table) -> int:
    """The table's last sequence number; 0 in format version 1, which has none."""
    return 0 if table.metadata.format_version == 1 else table.metadata.last_sequence_number
