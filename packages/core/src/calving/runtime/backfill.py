"""The state of a backfill: what it is to read, and whether all of it is in the tables.

A backfill is a sink of its own that ends (``settings.backfills``). The ends of its range are the offsets of a consumer
group without members, so that the same command goes on with the same range. In the end each table that it has written
says that it has ended.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import replace
from uuid import uuid4

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table
from pyiceberg.table.update import AssertTableUUID, SetPropertiesUpdate

from calving.errors import CommandFailedError, ConfigError, DataLossError
from calving.iceberg.catalog import find_table, table_id
from calving.iceberg.publication import BranchPublication, Publisher
from calving.model.backfills import ended_property, range_group
from calving.model.events import TableId
from calving.model.offsets import Coverage, SourceOffsets, Spans, each, intersection, less, present
from calving.protocol.ledger import Ledger, errors_naming
from calving.protocol.ledger_key import LedgerKey
from calving.retries import Backoff, tries
from calving.runtime import components
from calving.runtime.log_view import ControlLogView, hear, nothing_waits
from calving.runtime.names import remedy
from calving.runtime.preflight import before_first_commit, ledger_key, ledger_of, own_tables, owner_of
from calving.runtime.routed import routed_tables
from calving.settings.backfills import within_range
from calving.settings.load import Sink
from calving.source.backfill import (
    BackfillOrder,
    noted_spans,
    of_another_order,
    range_notes,
    refuse_unreadable,
    spans_of,
)
from calving.source.start import Start

_OLDEST = Start(0)
_TRIES, _BACKOFF = 20, Backoff(0.1, 1.6)


class Backfill:
    """One backfill, as its stores show it. ``sink``: what ``backfill_of`` makes of the order."""

    def __init__(self, sink: Sink, order: BackfillOrder) -> None:
        self.order = order
        self._made, self._topics = sink, components.source(sink)
        self._backend, self._catalog = components.backend(sink), components.catalog(sink)
        self._spans: Spans | None = None

    @property
    def sink(self) -> Sink:
        """The sink to run. It reads the range and ends."""
        return within_range(self._made, self.spans())

    def spans(self) -> Spans:
        """The offsets to read, by partition. The first call ever decides them.

        :raises ConfigError: the order cannot be met, or its id belongs to another one.
        :raises DataLossError: retention has taken a part of the range; or what the backfill had stored is lost.
        """
        if self._spans is None:
            self._spans = self._noted() or self._begun()
        return self._spans

    def begin(self) -> None:
        """Prepare the backend, and the range.

        :raises DataLossError: retention has taken a part of the range that is not read yet; or positions are lost.
        """
        self._backend.provision()
        self.keep()
        bounds = self._topics.bounds(self.spans().keys())
        published = self._has_published()  # before the positions: another process of the backfill may run
        stored = self.stored()
        if published and not stored:
            raise DataLossError(
                f"backfill {self.order.id} has begun before, and its positions are lost: it is unknown what is left;"
                f" {remedy(self._made.group)}"
            )
        refuse_unreadable(self.order, bounds, self.spans(), stored)

    def keep(self) -> None:
        """Store the range again, because Kafka forgets the offsets of a group without members after some days.

        The range that was stored last counts: another process may have begun the same backfill at the same moment.
        """
        self._spans = self._noted() or self.spans()
        topics = {tp.topic for tp in self.spans()}
        notes = range_notes(self.order, self.spans(), self._topics.identities(topics))
        self._topics.note(range_group(self._made.group), notes)

    def stored(self) -> SourceOffsets:
        """The stored positions."""
        with contextlib.closing(self._backend.open(str(uuid4()))) as session:
            return session.committed(self.spans().keys())

    def has_ended(self) -> bool:
        """Whether every record of the range is in the tables, among the dead letters, or filtered."""
        if any(self._is_marked(table) for _, table in self._tables()):
            return True
        self._spans = self._noted() or self._spans
        if not self._spans:
            return False
        self._backend.provision()  # somebody may have deleted the control topic, with what was published and waits
        with contextlib.closing(self._backend.open(str(uuid4()))) as session:
            stored, logs = session.committed(self._spans.keys()), session.log_ids(self._spans.keys())
        if not stored or any(stored.get(tp, 0) < span.end for tp, span in self._spans.items()):
            return False
        heard = self._hear()
        return {*logs.values()} <= {heard.log_id} and nothing_waits(self._made, self._catalog, heard)

    def mark_ended(self) -> None:
        """Write into each table that it has records of the backfill, and that these are all."""
        for name, table in self._written():
            if not self._is_marked(table):
                set_property(self._catalog, table_id(name), self._mark, self.order.digest)

    def tables(self) -> dict[str, Ledger]:
        """The tables that hold records of the backfill, or held some, with their ledgers."""
        return {name: ledger_of(self.key(name), table) for name, table in self._written()}

    def held(self, sink: Sink) -> dict[str, Coverage]:
        """The offsets of the range that are in the ledger of the ``sink``, whose backfill this is, by table: of the
        branch that gets rows. Where the sink began, only its first snapshot tells.
        """
        scope = self._made.scope.tables if self._made.scope is not None else frozenset()
        topics, held = {tp.topic for tp in self.spans()}, {}
        routed = routed_tables(self._catalog, sink, topics).sound(sink)
        for name in dict.fromkeys([*self._made.keys.tables, *routed]):
            is_filled = name != sink.keys.dead_letter_table and (not scope or name in scope)
            table = find_table(self._catalog, table_id(name)) if is_filled else None
            if table is not None:
                key = replace(ledger_key(sink, "", name), branch=self.key(name).branch)
                ledger = ledger_of(key, table)
                with errors_naming(name):
                    own = less({tp: ledger.held(tp) for tp in ledger.source}, before_first_commit(key, table))
                if shared := intersection(present(own, self._topics.identities(topics)), each(self.spans())):
                    held[name] = shared
        return held

    def publish(self, table: str, branch: str, target: str) -> BranchPublication:
        """Bring the branch of a table into the target.

        :raises ConfigError: Iceberg does not allow it; the text says why.
        """
        return Publisher(self._catalog, table_id(table), branch, target, owner_of(self._made)).publish()

    def key(self, table: str) -> LedgerKey:
        """The key of the backfill's ledger in a table."""
        return ledger_key(self._made, "", table)

    @property
    def _mark(self) -> str:
        return ended_property(owner_of(self._made))

    def _is_marked(self, table: Table) -> bool:
        """:raises ConfigError: the id belongs to another order."""
        said = table.properties.get(self._mark)
        if said not in (None, self.order.digest):
            raise ConfigError(of_another_order(self.order))
        return said is not None

    def _written(self) -> Iterator[tuple[str, Table]]:
        for name, table in self._tables():
            if any(entry.startswith(self.key(name).offsets) for entry in table.properties):
                yield name, table

    def _tables(self) -> Iterator[tuple[str, Table]]:
        topics = {tp.topic for tp in self._topics.partitions()}
        routed = routed_tables(self._catalog, self._made, topics).sound(self._made)
        for name in dict.fromkeys([*own_tables(self._made), *routed]):
            if (table := find_table(self._catalog, table_id(name))) is not None:
                yield name, table

    def _noted(self) -> Spans:
        found = self._topics.noted(range_group(self._made.group))
        return noted_spans(self.order, found, self._topics.identities({tp.topic for tp in found}))

    def _begun(self) -> Spans:
        """The range that begins now. Another process that begins the same backfill at this moment may have noted
        another one: what was noted last counts, for both.
        """
        self._refuse_a_second_beginning()
        every, order = self._topics.partitions(), self.order
        starts, ends = self._topics.starts(every, order.start), self._topics.starts(every, order.end)
        self._spans = spans_of(order, self._topics.bounds(every), starts, ends, self._topics.starts(every, _OLDEST))
        self.keep()
        return self._noted()

    def _refuse_a_second_beginning(self) -> None:
        """:raises DataLossError: the backfill has begun before, and Kafka has forgotten what it was to read."""
        if self._has_published() or any(True for _ in self._written()):
            raise DataLossError(
                f"backfill {self.order.id} has begun before, and what it was to read is forgotten, as Kafka does after"
                f" offsets.retention.minutes: it is unknown what is left; {remedy(self._made.group)}"
            )

    def _has_published(self) -> bool:
        heard = self._hear()
        return bool(heard.tables or heard.committed)

    def _hear(self) -> ControlLogView:
        with contextlib.closing(self._backend.open(str(uuid4()))) as session:
            return hear(session)


def set_property(catalog: Catalog, table: TableId, name: str, text: str) -> None:
    """Set a table property beside others who commit."""
    for is_last in tries(_TRIES, lambda failed: time.sleep(_BACKOFF.pause(failed))):
        loaded = catalog.load_table(table)
        try:
            loaded._do_commit(
                (SetPropertiesUpdate(updates={name: text}),), (AssertTableUUID(uuid=loaded.metadata.table_uuid),)
            )
        except CommitFailedException as error:
            if is_last:
                raise CommandFailedError(f"table {'.'.join(table)}: others commit too fast; run it again") from error
        else:
            return
