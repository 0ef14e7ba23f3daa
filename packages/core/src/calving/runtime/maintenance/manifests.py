"""Merges the manifests of a sink's tables."""

from __future__ import annotations

from collections.abc import Iterator

from calving.iceberg.catalog import table_id
from calving.iceberg.summary import engine
from calving.maintenance.manifest_plan import ManifestGroup
from calving.maintenance.manifests import ManifestMerger, MergedGroup
from calving.model.text import bytes_text, counted
from calving.runtime.maintenance.means import Means
from calving.runtime.maintenance.step import MaintenanceStep, committing
from calving.runtime.preflight import ledger_key
from calving.settings.load import Sink

MANIFESTS = "manifests"


def merged(means: Means, sink: Sink, name: str, *, dry_run: bool) -> Iterator[MaintenanceStep]:
    """Merge what is due in one table; yields what becomes of each group of manifests.

    :raises CommandFailedError: others have committed too fast.
    """
    least = int(sink.maintenance(name, "manifests"))
    table_name, key = table_id(name), ledger_key(sink, "", name)
    merger = ManifestMerger(means.catalog, table_name, key, engine(), least, turn=means.turn(table_name))
    if (table := merger.load()) is None:
        yield _step(name, "nothing", "no manifests to merge")
        return
    if (why := merger.refusal(table)) is not None:
        yield _step(name, "left alone", f"manifests are not merged: {why}")
        return
    groups = merger.plan(table)
    for group in groups:
        if dry_run:
            text = f"{_manifests(group)} would become about {counted(group.outputs, 'manifest')}"
            yield _step(name, "planned", text, group)
            continue
        with committing(name):
            done = merger.merge(table, group)
        yield _done(name, done)
    if not groups:
        yield _step(name, "nothing", "no manifests to merge")


def _done(name: str, done: MergedGroup) -> MaintenanceStep:
    what = _manifests(done.group)
    if done.failed is not None:
        return _step(name, "failed", f"{what} stay: {done.failed}", done.group)
    if done.change is None:
        return _step(name, "nothing", f"{what} are gone meanwhile", done.group)
    size = sum(manifest.manifest_length for manifest in done.change.outputs)
    outputs = len(done.change.outputs)
    text = f"{what} became {counted(outputs, 'manifest')} ({bytes_text(size)})"
    return _step(name, "done", text, done.group, outputs=outputs, bytes_after=size)


def _manifests(group: ManifestGroup) -> str:
    kind = "data file" if group.content == "data" else "delete file"
    of = f"{counted(len(group.manifests), 'manifest')} of {counted(group.files, kind)}"
    return f"{of} ({bytes_text(group.size)})"


def _step(name: str, outcome: str, text: str, group: ManifestGroup | None = None, **more: object) -> MaintenanceStep:
    if group is not None:
        of = {"content": group.content, "manifests": len(group.manifests), "files": group.files, "bytes": group.size}
        more = {**of, **more}
    return MaintenanceStep(name, MANIFESTS, outcome, text, more)
