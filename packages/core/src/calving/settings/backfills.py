"""The sink that a backfill is: it reads a range of the topics through the settings of another one, and ends."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from pydantic import TypeAdapter, ValidationError

from calving.errors import ConfigError
from calving.model.backfills import group_of, id_within
from calving.model.offsets import Spans
from calving.model.table_names import is_table_name
from calving.settings.keys import Branch
from calving.settings.load import Sink
from calving.settings.records import branches
from calving.source.backfill import BackfillOrder, BackfillScope
from calving.source.start import Start


def backfill_of(sink: Sink, order: BackfillOrder) -> Sink:
    """The sink that is a backfill of this one, before its range is known (``within_range``).

    :raises ConfigError: the order names a table or a branch that it cannot; or old changes of rows would come after
        newer ones.
    """
    keys, letters = sink.keys, sink.keys.dead_letter_table
    if order.branch is not None:
        _check_branch(order.branch)
    for table in order.tables:
        _check_table(sink, table)
    named = frozenset(name.lower() if keys.routes_freely else name for name in order.tables)
    kept = named or sink.tables.keys() | set(keys.tables)
    tables = {name: own for name, own in sink.tables.items() if name in kept or name == letters}
    change: dict[str, object] = {
        "tables": tuple(name for name in keys.tables if name in kept),
        "other_sinks": (*keys.other_sinks, f"{keys.control_topic}.{sink.group}"),
        "on_data_loss": "fail",
        "on_rollback": None,  # `calving rollback` answers for the sink alone
        "maintenance_enabled": "false",
        "http_port": None,
        "webhook_url": None,
    }
    if order.tables:
        change["on_unrouted"] = "skip"
    if order.branch is not None:
        change["default_branch"] = order.branch
    own_change = {
        "maintenance_enabled": "false",
        "on_rollback": None,
        **({"commit_branch": None} if order.branch is not None else {}),
    }
    of_its_own = backfill_named(sink, order.id)
    made = replace(
        of_its_own,
        keys=of_its_own.keys.model_copy(update=change),
        tables={name: own.model_copy(update=own_change) for name, own in tables.items()},
        scope=BackfillScope(tables=named),
    )
    _refuse_old_changes(sink, made, named)
    return made


def check_publication(sink: Sink, order: BackfillOrder) -> None:
    """:raises ConfigError: the order has no branch that can be published."""
    if order.branch is None:
        raise ConfigError("--publish is for a branch: name it with --branch")
    routed = ("",) if sink.keys.routes_freely else ()
    for table in order.tables or (*routed, *sink.keys.tables):
        if sink.mutations(table) is not None:
            name = f"table {table}" if table else "iceberg.tables"
            raise ConfigError(
                f"{name}: its rows change by key, and the old changes of a backfill cannot come beneath the later ones:"
                f" leave --publish out, and take what you need from branch {order.branch} by hand"
            )


def backfill_named(sink: Sink, backfill_id: str) -> Sink:
    """A backfill of this sink, whatever it reads: where its control log is."""
    change = {"name": f"{sink.keys.name}-backfill-{backfill_id}", "group": group_of(sink.group, backfill_id)}
    return replace(sink, keys=sink.keys.model_copy(update=change), connector_group=None, parent=sink.creator)


def backfills_among(sinks: Iterable[Sink], owners: Iterable[str]) -> Iterator[Sink]:
    """Those of the owners of ledgers that are backfills of these sinks."""
    for sink in sinks:
        for owner in sorted(owners):
            if (found := id_within(owner, f"{sink.keys.control_topic}.{sink.group}")) is not None:
                yield backfill_named(sink, found)


def within_range(made: Sink, spans: Spans) -> Sink:
    """A backfill that reads these offsets."""
    start = Start(offsets=tuple((tp, span.start) for tp, span in sorted(spans.items())))
    scope = BackfillScope(
        {tp: span.end for tp, span in spans.items()}, made.scope.tables if made.scope else frozenset()
    )
    return replace(made, keys=made.keys.model_copy(update={"start": start}), scope=scope)


def _check_branch(branch: str) -> None:
    try:
        TypeAdapter(Branch).validate_python(branch)
    except ValidationError as error:
        why = error.errors()[0]["msg"].removeprefix("Value error, ")
        raise ConfigError(f"--branch '{branch}': {why.replace('the key', '--branch')}") from error


def _check_table(sink: Sink, table: str) -> None:
    if sink.keys.routes_freely:
        if not is_table_name(table):
            raise ConfigError(f"--table {table}: that is no table's name with its namespace, such as db.events")
    elif table not in sink.keys.tables:
        raise ConfigError(f"--table {table}: the sink does not write it; its tables are {', '.join(sink.keys.tables)}")


def _refuse_old_changes(sink: Sink, made: Sink, named: Iterable[str]) -> None:
    """:raises ConfigError: a table's rows change by key, and the backfill would write where the sink does (I7)."""
    own, theirs = branches(sink.keys, sink.tables), branches(made.keys, made.tables)
    routed = ("",) if sink.keys.routes_freely else ()
    for table in [*(named or (*routed, *sink.keys.tables, *made.tables))]:
        identifier = tuple(table.split("."))
        if sink.mutations(table) is not None and own.of(identifier) == theirs.of(identifier):
            name = f"table {table}" if table else "iceberg.tables"
            raise ConfigError(
                f"{name}: its rows change by key, and the changes of a backfill would come after the later ones that"
                f" the sink has made in branch {own.of(identifier)}: name another one with --branch, or other tables"
                " with --table"
            )
