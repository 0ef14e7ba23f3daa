"""Finds out what a catalog can do for the sink, as far as that can be tried without changing a table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import BadRequestError, CommitFailedException, ForbiddenError
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.update import AssertTableUUID, RemoveSnapshotRefUpdate, SetSnapshotRefUpdate
from pyiceberg.types import LongType, NestedField

from calving.errors import ConfigError, UnavailableError
from calving.iceberg.catalog import is_rest
from calving.iceberg.manifests import LINEAGE_VERSION
from calving.secrets import masked

_COMMITS = {
    "SqlCatalog": "a commit replaces the row of the metadata that it read",
    "GlueCatalog": "Glue compares the version of the table that a commit read",
    "HiveCatalog": "the metastore locks a table for each commit",
}
_REFUSALS = (BadRequestError, ForbiddenError, NotImplementedError)


def abilities(catalog: Catalog, table: Table | None, branch: str | None = None) -> Iterator[str]:
    """One line about commits, one about format versions, and one about branches if the sink commits to ``branch``.

    ``table``: any table to try with. A REST catalog gets two requests: a commit without changes, whose requirement
    cannot hold, and a request to stage a table. With ``branch``, every catalog gets a commit that makes a branch and
    removes it.

    :raises ConfigError: the catalog accepts the commit whose requirement does not hold, so two coordinators could
        overwrite each other's commits; or it refuses the branch.
    """
    if not is_rest(catalog):
        kind = type(catalog).__name__
        yield f"commits: {_COMMITS.get(kind, f'as {kind} makes them, which was not tried')}"
        yield f"format versions: 1 to {LINEAGE_VERSION}"
    else:
        if table is None:
            yield "commits: not tried, because there is no table yet"
        else:
            _refuse_blind_commits(catalog, table)
            yield "commits: the catalog refuses those whose requirements do not hold"
        yield f"format versions: {_versions(catalog)}"
    if branch is not None:
        yield f"branches: {_branches(catalog, table, branch)}"


def _refuse_blind_commits(catalog: Catalog, table: Table) -> None:
    try:
        catalog.commit_table(table, (AssertTableUUID(uuid=uuid4()),), ())
    except CommitFailedException:
        return
    except Exception as error:  # each catalog has its own errors, for a missing privilege for example
        raise _silent(table, "whether it checks commits", error) from error
    raise ConfigError(
        "iceberg.catalog.*: the catalog accepts a commit whose requirements do not hold: two coordinators would"
        " overwrite each other's commits, and records would be lost; use another catalog"
    )


def _versions(catalog: Any) -> str:
    """Tries the newest version with a staged table, which is never created."""
    namespace = next(iter(catalog.list_namespaces()), None)
    if namespace is None:
        return f"1 to {LINEAGE_VERSION - 1}; {LINEAGE_VERSION} was not tried, because there is no namespace yet"
    name = (*namespace, f"calving_{uuid4().hex}")
    schema = Schema(NestedField(1, "id", LongType(), required=False))
    try:
        catalog.create_table_transaction(name, schema, properties={"format-version": str(LINEAGE_VERSION)})
    except Exception as error:  # each catalog has its own
        return f"1 to {LINEAGE_VERSION - 1}; {LINEAGE_VERSION} is refused: {type(error).__name__}: {masked(str(error))}"
    if catalog.table_exists(name):  # it cannot stage tables: it has created this one
        catalog.drop_table(name)
    return f"1 to {LINEAGE_VERSION}"


def _branches(catalog: Catalog, table: Table | None, branch: str) -> str:
    if table is None or not table.metadata.snapshots:
        return "not tried, because there is no snapshot yet"
    name, snapshot = f"calving-{uuid4()}", table.metadata.snapshots[-1].snapshot_id
    made = SetSnapshotRefUpdate(
        ref_name=name,
        type=SnapshotRefType.BRANCH,
        snapshot_id=snapshot,
        max_ref_age_ms=None,
        max_snapshot_age_ms=None,
        min_snapshots_to_keep=None,
    )
    guards = (AssertTableUUID(uuid=table.metadata.table_uuid),)
    try:
        catalog.commit_table(table, guards, (made, RemoveSnapshotRefUpdate(ref_name=name)))
    except _REFUSALS as error:
        raise ConfigError(
            f"table {'.'.join(table.name())}: the catalog refuses branches: {masked(str(error))}; commit to main,"
            f" not to '{branch}': remove iceberg.tables.default-commit-branch and iceberg.table.<t>.commit-branch"
        ) from error
    except Exception as error:
        raise _silent(table, "whether it has branches", error) from error
    return "the catalog makes and removes them"


def _silent(table: Table, what: str, error: Exception) -> UnavailableError:
    return UnavailableError(
        f"table {'.'.join(table.name())}: the catalog does not say {what}: {type(error).__name__}: {masked(str(error))}"
    )
