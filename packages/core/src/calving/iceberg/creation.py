"""Creates tables, and the namespaces around them."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import (
    ForbiddenError,
    NamespaceAlreadyExistsError,
    NoSuchNamespaceError,
    TableAlreadyExistsError,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema

from calving.errors import ConfigError
from calving.iceberg.catalog import find_table, is_final, reaching, table_id
from calving.model.events import TableId
from calving.secrets import without_secrets

log = logging.getLogger(__name__)


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
    """:raises ConfigError: no later answer of the catalog would differ."""
    if is_final(error):
        raise ConfigError(f"{what}: {without_secrets(str(error), catalog.properties)}") from error


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
