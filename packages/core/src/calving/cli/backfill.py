"""``calving backfill``: reads a range of the topics once, into the tables or into a branch of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping

from calving.errors import CommandFailedError, ConfigError
from calving.iceberg.catalog import table_id
from calving.model.offsets import Coverage, SourceOffsets, Spans, each, size, text_of
from calving.model.text import counted, listed
from calving.runtime.backfill import Backfill
from calving.settings.backfills import backfill_of, check_publication
from calving.settings.load import Sink
from calving.settings.records import branches
from calving.source.backfill import BackfillOrder, read_of
from calving.source.start import Start
from calving.status.values import Status
from calving.terminal.range_bar import RangeBar

_MOST_LINES = 20
_KEEP_SECONDS = 3600.0
Tell = Callable[[Status], None]
Run = Callable[[Sink, Tell], None]
"""Runs a worker until it has caught up, or is told to stop, and tells its status several times a second."""


def order_of(start: str, end: str, branch: str | None, tables: tuple[str, ...], given_id: str | None) -> BackfillOrder:
    """:raises ConfigError: an option is none."""
    places = []
    for option, text in (("--from", start), ("--to", end)):
        try:
            places.append(Start.of(text))
        except ValueError as error:
            raise ConfigError(f"{option}: {error}") from error
    return BackfillOrder(places[0], places[1], branch, tables, given_id)


def backfill(sink: Sink, order: BackfillOrder, run: Run, bar: RangeBar, *, publish: bool = False) -> Iterator[str]:
    """Read what is left of the range; yields what was done. ``publish``: its branch, too, once all is read.

    :raises ConfigError: the order cannot be met.
    :raises DataLossError: a part of the range is gone, or the backfill cannot go on.
    :raises CommandFailedError: it was stopped before its end, or a rollback has taken away what it had written.
    """
    if publish:
        check_publication(sink, order)
    made = Backfill(backfill_of(sink, order), order)
    if not made.has_ended():
        made.begin()
        yield from _lines(order, made.spans(), made.stored())
        yield from _doubled(made.held(sink))
        _run(made, run, bar)
        if not made.has_ended():
            raise CommandFailedError(
                f"backfill {order.id} was stopped before its end: run the same command again, and it goes on"
            )
    made.mark_ended()
    tables = made.tables()
    for name, ledger in tables.items():
        if ledger.unanswered:
            raise CommandFailedError(
                f"backfill {order.id} has ended, but table {name} was rolled back since, or its branch was dropped, and"
                " lacks records of it: to read them again, begin another backfill with another --id"
            )
    where = f"in {listed(tables)}" if tables else "in no table: no record of the range was routed to one"
    branch = f", branch {order.branch}" if order.branch is not None and tables else ""
    yield f"backfill {order.id} has ended: every record of its range is {where}{branch}"
    if publish and order.branch is not None:
        for name in tables:
            target = branches(sink.keys, sink.tables).of(table_id(name))
            done = made.publish(name, order.branch, target)
            yield f"table {name}: {done.text(order.branch, target)}"


def _run(made: Backfill, run: Run, bar: RangeBar) -> None:
    kept, spans, before = time.monotonic(), made.spans(), made.stored()

    def tell(status: Status) -> None:
        nonlocal kept
        held = {tp: partition.position for tp, partition in status.worker.partitions.items()}
        bar.show(read_of(spans, {**before, **held}))
        if time.monotonic() - kept > _KEEP_SECONDS:
            made.keep()
            kept = time.monotonic()

    with bar.of(made.order.id, size(each(spans))):
        run(made.sink, tell)


def _doubled(held: Mapping[str, Coverage]) -> Iterator[str]:
    """What stands twice, as far as ledgers tell: they do not tell where the sink began."""
    for name, offsets in sorted(held.items()):
        yield (
            f"table {name} holds {counted(size(offsets), 'offset')} of them already ({text_of(offsets)}), except any"
            " from before the sink's first start: their records will stand twice"
        )


def _lines(order: BackfillOrder, spans: Spans, stored: SourceOffsets) -> Iterator[str]:
    wanted = {tp: span for tp, span in sorted(spans.items()) if span.start < span.end}
    left = {tp: max(stored.get(tp, span.start), span.start) for tp, span in wanted.items()}
    for tp, span in [*wanted.items()][:_MOST_LINES]:
        again = f", goes on at {left[tp]}" if left[tp] > span.start else ""
        yield f"{tp}: {span.start} to {span.end}{again}"
    if len(wanted) > _MOST_LINES:
        yield f"and {len(wanted) - _MOST_LINES} more partitions"
    total = size(each(wanted))
    yield f"backfill {order.id}: {counted(total, 'offset')} of {counted(len(wanted), 'partition')}"
