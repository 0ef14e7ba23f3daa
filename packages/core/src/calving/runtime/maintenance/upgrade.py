"""Upgrades tables of a sink to Iceberg's format version 3."""

from __future__ import annotations

import time
from collections.abc import Iterator

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table.update import AssertTableUUID, UpgradeFormatVersionUpdate

from calving.errors import CommandFailedError
from calving.iceberg.catalog import find_table, table_id
from calving.retries import Backoff, tries
from calving.runtime.maintenance.step import MaintenanceStep
from calving.settings.load import Sink

UPGRADE = "upgrade"
_VERSION = 3
_TRIES, _BACKOFF = 10, Backoff(0.1, 1.6)


def upgraded(catalog: Catalog, sink: Sink, name: str, *, dry_run: bool) -> Iterator[MaintenanceStep]:
    """Upgrade one table; yields what was done. Only the metadata changes, and sinks that write to the table go on.

    :raises CommandFailedError: this sink could not change the rows of the table any more, or others have committed too
        fast.
    """
    mutations = sink.mutations(name)
    if mutations is not None and (why := mutations.refusal(_VERSION)) is not None:
        raise CommandFailedError(f"table {name} was not upgraded: {why}")
    for is_last in tries(_TRIES, lambda failed: time.sleep(_BACKOFF.pause(failed))):
        table = find_table(catalog, table_id(name))
        if table is None:
            return
        version = table.metadata.format_version
        if version >= _VERSION:
            yield MaintenanceStep(name, UPGRADE, "nothing", f"it is of format version {version} already")
            return
        numbers = {"from": version, "to": _VERSION}
        if dry_run:
            text = f"it would be upgraded from format version {version} to {_VERSION}"
            yield MaintenanceStep(name, UPGRADE, "planned", text, numbers)
            return
        change = UpgradeFormatVersionUpdate(format_version=_VERSION)
        try:
            table._do_commit((change,), (AssertTableUUID(uuid=table.metadata.table_uuid),))
        except CommitFailedException as error:
            if is_last:
                raise CommandFailedError(
                    f"table {name}: others committed faster each time ({error}); it was not upgraded, run it again"
                ) from error
            continue
        text = f"it was upgraded from format version {version} to {_VERSION}"
        yield MaintenanceStep(name, UPGRADE, "done", text, numbers)
        return
