"""What a catalog gives the sink, and what it does not: asked for where it can be asked without a change."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table
from pyiceberg.table.update import AssertTableUUID

from calving.errors import ConfigError, UnavailableError
from calving.iceberg.catalog import is_rest
from calving.iceberg.lineage import VERSION
from calving.secrets import masked

_COMMITS = {
    "SqlCatalog": "a commit replaces the row of the metadata that it read",
    "GlueCatalog": "Glue compares the version of the table that a commit read",
    "HiveCatalog": "the metastore locks a table for each commit",
}


def abilities(catalog: Catalog, table: Table | None) -> Iterator[str]:
    """One line about commits, and one about format versions. ``table``: any, to ask a REST catalog with.

    A REST catalog gets a commit that changes nothing and requires what cannot be.

    :raises ConfigError: it accepts that, so two coordinators could overwrite each other's commits.
    """
    kind = type(catalog).__name__
    if not is_rest(catalog):
        yield f"commits: {_COMMITS.get(kind, f'as {kind} makes them, which was not tried')}"
        yield f"format versions: 1 to {VERSION - 1}; {VERSION} needs a REST catalog"
        return
    if table is None:
        yield "commits: not tried, because there is no table yet"
    else:
        _refuse_blind_commits(catalog, table)
        yield "commits: the catalog refuses those whose requirements do not hold"
    yield f"format versions: 1 to {VERSION}"


def _refuse_blind_commits(catalog: Catalog, table: Table) -> None:
    try:
        catalog.commit_table(table, (AssertTableUUID(uuid=uuid4()),), ())
    except CommitFailedException:
        return
    except Exception as error:  # each catalog has its own, for a missing privilege for example
        raise UnavailableError(
            f"table {'.'.join(table.name())}: the catalog does not say whether it checks commits:"
            f" {type(error).__name__}: {masked(str(error))}"
        ) from error
    raise ConfigError(
        "iceberg.catalog.*: the catalog accepts a commit whose requirements do not hold: two coordinators would"
        " overwrite each other's commits, and records would be lost; use another catalog"
    )
