"""Creates tables, and the namespaces around them, and changes the schemas of tables."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    ForbiddenError,
    NamespaceAlreadyExistsError,
    NoSuchNamespaceError,
    TableAlreadyExistsError,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema

from calving.errors import (
    AccessDeniedError,
    CalvingError,
    CatalogRefusedError,
    ConfigError,
    CredentialsExpiredError,
    UnavailableError,
    first_line,
)
from calving.iceberg.catalog import find_table, is_final, reaching, table_id
from calving.iceberg.evolution import possible
from calving.iceberg.rules import TableRules
from calving.iceberg.schemas import change_schema, is_open
from calving.model.events import TableId
from calving.model.tables import RefusedChange, SchemaChange
from calving.retries import Backoff, tries
from calving.secrets import without_secrets

log = logging.getLogger(__name__)

CREATED_BY = "calving.created-by"
"""The table property with the owner of the sink that has created the table, ``<control topic>.<group>``."""
_TRIES, _BACKOFF = 6, Backoff(0.1, 1.6)


def create_table(
    catalog: Catalog,
    name: str,
    schema: Schema,
    spec: PartitionSpec,
    location: str | None,
    properties: Mapping[str, str],
) -> None:
    """Create a table, unless someone else has created it.

    :raises ConfigError: no later answer of the catalog would differ.
    :raises UnavailableError: as ``reaching``.
    """
    identifier = table_id(name)
    _create_namespaces(catalog, identifier[:-1])
    with reaching(catalog, f"table {name} was not created"):
        try:
            catalog.create_table(identifier, schema, location, spec, properties={**properties})
            log.info("table %s was created", name)
        except TableAlreadyExistsError:
            log.info("table %s was created by someone else", name)
        except Exception as error:  # some catalogs have no exception for what others were faster with
            if find_table(catalog, identifier) is None:
                refuse_final(catalog, error, f"table {name} cannot be created")
                raise
            log.info("table %s was created by someone else", name)


def refuse_final(catalog: Catalog, error: Exception, what: str) -> None:
    """:raises CatalogRefusedError: no later answer of the catalog would differ."""
    if is_final(error):
        raise CatalogRefusedError(f"{what}: {without_secrets(str(error), catalog.properties)}") from error


def _create_namespaces(catalog: Catalog, namespace: TableId) -> None:
    for depth in range(1, len(namespace) + 1):
        name = ".".join(namespace[:depth])
        with reaching(catalog, f"namespace {name} was not created"):
            try:
                catalog.create_namespace(namespace[:depth])
            except (NamespaceAlreadyExistsError, ForbiddenError):
                continue
            except NoSuchNamespaceError as error:
                raise ConfigError(f"namespace {'.'.join(namespace)} cannot be created: {error}") from error
            except Exception as error:  # some catalogs have no exception for what others were faster with
                if not _has_namespace(catalog, namespace[:depth]):
                    refuse_final(catalog, error, f"namespace {name} cannot be created")
                    raise


def _has_namespace(catalog: Catalog, namespace: TableId) -> bool:
    with reaching(catalog, f"namespace {'.'.join(namespace)}: the catalog does not say whether it exists"):
        return bool(catalog.namespace_exists(namespace))


def evolve(catalog: Catalog, name: str, changes: Sequence[SchemaChange], rules: TableRules) -> list[RefusedChange]:
    """Make the schema changes of one table, in one update if the catalog takes all of them. Returns those that it
    refuses for good: they are made or refused one by one, so that no column hangs on another. If records name the
    table, a missing permission is such a refusal, too: otherwise any record could stop the sink.

    :raises AccessDeniedError: the settings name the table, and the login may not change it.
    :raises UnavailableError: others kept changing the table; try again.
    :raises BadRecordError: a few values would be bad in a new column, and bad records are not tolerated.
    """
    refused: list[RefusedChange] = []
    pending = [changes]
    while pending:
        some = pending.pop()
        try:
            _change(catalog, name, some, rules)
        except CatalogRefusedError as error:
            half = len(some) // 2
            if half:
                pending += [some[half:], some[:half]]
                continue
            if rules.is_mark(name, some[0]) and not rules.is_named_by_records(name):
                raise
            refused += [_refused(change, error) for change in some]
        except AccessDeniedError as error:
            if isinstance(error, CredentialsExpiredError) or not rules.is_named_by_records(name):
                raise
            refused += [_refused(change, error) for each in (some, *pending) for change in each]
            pending = []
    for each in refused:
        log.warning("table %s: field '%s': %s; records that need it are bad", name, ".".join(each.path), each.reason)
    return refused


def _change(catalog: Catalog, name: str, changes: Sequence[SchemaChange], rules: TableRules) -> None:
    """:raises CatalogRefusedError: the catalog refuses at least one of the changes."""
    what = ", ".join(map(str, changes))
    for _ in tries(_TRIES, lambda failed: time.sleep(_BACKOFF.pause(failed))):
        table = find_table(catalog, table_id(name))
        if table is None:
            raise UnavailableError(f"table {name} was dropped while its schema was to be changed")
        pending = [change for change in changes if is_open(change, table.schema())]
        if not pending:
            return
        # After an error that says nothing clear, the next load shows whether the schema was changed.
        with reaching(catalog, f"table {name}: its schema was not changed ({what})"):
            try:
                changes = possible(table, pending, rules)
                change_schema(table, changes, defaults=rules.schema_defaults)
                log.info("table %s: %s", name, what)
                return
            except CommitFailedException:
                continue
            except Exception as error:  # catalogs raise exceptions of their own
                refuse_final(catalog, error, f"table {name}: the catalog refuses a schema change ({what})")
                raise
    raise UnavailableError(f"table {name}: its schema could not be changed: other writers were faster {_TRIES} times")


_WISHES = {
    "add": "cannot be added",
    "widen": "cannot be widened",
    "optional": "cannot become optional",
    "rename": "cannot be renamed",
}


def _refused(change: SchemaChange, error: CalvingError) -> RefusedChange:
    return RefusedChange(change.kind, change.path, f"its column {_WISHES[change.kind]}: {first_line(error)}")
