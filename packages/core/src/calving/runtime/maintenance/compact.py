"""Compacts the tables of a sink: small files become large ones."""

from __future__ import annotations

from collections.abc import Iterator

from pyiceberg.table import Table

from calving.iceberg.catalog import table_id
from calving.iceberg.equality import EqualitySearch
from calving.iceberg.summary import engine
from calving.maintenance.compactor import CompactedGroup, Compactor, partition_text
from calving.maintenance.plan import FileGroup, Plan
from calving.model.text import bytes_text, counted
from calving.runtime.maintenance.means import Means
from calving.runtime.maintenance.step import MaintenanceStep, committing
from calving.runtime.preflight import ledger_key
from calving.settings.load import Sink

COMPACT = "compact"


def compacted(means: Means, sink: Sink, name: str, now_ms: int, *, dry_run: bool) -> Iterator[MaintenanceStep]:
    """Compact what is due in one table; yields what becomes of each group of files.

    :raises CommandFailedError: others have committed too fast.
    """
    key = ledger_key(sink, "", name)
    compactor = Compactor(
        catalog=means.catalog,
        table=table_id(name),
        key=key,
        about=engine(),
        triggers=sink.triggers(name),
        write_properties=sink.write_properties,
        turn=means.turn(table_id(name)),
        rewriting=means.rewriting,
        made=means.made,
        strategy=sink.maintenance(name, "strategy"),
        changes_rows=sink.mutations(name) is not None,
        search=lambda: EqualitySearch(means.cache(), tasks=means.tasks),
    )
    table = compactor.load()
    if table is None:
        yield _step(name, "nothing", "nothing to compact")
        return
    if (why := compactor.refusal(table)) is not None:
        yield _step(name, "left alone", f"not compacted: {why}")
        return
    plan, order = compactor.plan(table, now_ms), compactor.new_files(table).order
    if means.observer is not None:
        means.observer.found(name, COMPACT, _sizes(table, plan))
    for group in plan.groups:
        if dry_run:
            yield _planned(name, table, group, compactor.outputs(table, group), order)
            continue
        with committing(name):
            done = compactor.compact(group)
        yield _done(name, table, done, order)
    yield from _rest(name, plan)


def _sizes(table: Table, plan: Plan) -> dict[str, tuple[int, int]]:
    """Files and bytes that are due, by partition."""
    sizes: dict[str, tuple[int, int]] = {}
    for group in plan.groups:
        partition = partition_text(table, group.partition)
        files, size = sizes.get(partition, (0, 0))
        sizes[partition] = files + len(group.files), size + group.size
    return sizes


def _planned(name: str, table: Table, group: FileGroup, outputs: int, order: str) -> MaintenanceStep:
    text = f"{_files(table, group)} would become about {counted(outputs, 'file')}{_in(order)}: {group.reason}"
    return _step(name, "planned", text, table, group)


def _done(name: str, table: Table, done: CompactedGroup, order: str) -> MaintenanceStep:
    group, made = done.group, done.replacement
    if made is None:
        why = done.failed or done.dropped
        if why is None:
            return _step(name, "nothing", f"{_files(table, group)} are gone meanwhile", table, group)
        return _step(name, "failed" if done.failed else "dropped", f"{_files(table, group)} stay: {why}", table, group)
    size = sum(output.file_size_in_bytes for output in made.outputs)
    outputs = f"{counted(len(made.outputs), 'file')} ({bytes_text(size)}){_in(order)}"
    text = f"{_files(table, group)} became {outputs}: {group.reason}"
    if made.translated:
        text += f"; {counted(made.translated, 'row')} deleted meanwhile"
    return _step(name, "done", text, table, group, outputs=len(made.outputs), bytes_after=size)


def _in(order: str) -> str:
    return f", {order}" if order else ""


def _rest(name: str, plan: Plan) -> Iterator[MaintenanceStep]:
    if plan.waiting:
        waiting = f"{counted(plan.waiting, 'file')} with equality deletes wait for the task deletes"
        yield _step(name, "nothing", f"{waiting}" if plan.groups else f"nothing to compact, {waiting}")
    elif not plan.groups:
        yield _step(name, "nothing", "nothing to compact")


def _files(table: Table, group: FileGroup) -> str:
    partition = partition_text(table, group.partition)
    of = f" of {partition}" if partition else ""
    return f"{counted(len(group.files), 'file')}{of} ({bytes_text(group.size)})"


def _step(
    name: str, outcome: str, text: str, table: Table | None = None, group: FileGroup | None = None, **more: object
) -> MaintenanceStep:
    if table is not None and group is not None:
        partition = partition_text(table, group.partition)
        more = {"partition": partition, "files": len(group.files), "bytes": group.size, "reason": group.reason, **more}
    return MaintenanceStep(name, COMPACT, outcome, text, more)
