"""A schema of a registry, and the schemas to which it refers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from calving.converters.schemas import SchemaRegistry
from calving.model.record_path import Limits

_MOST_REFERENCES, _MOST_LEVELS = 500, 50


class References:
    """Asks for one schema, and follows its references. They are bounded, because each of them is a request to the
    registry, and so are the texts, because a parser takes time and memory for each byte.
    """

    def __init__(self, registry: SchemaRegistry, limits: Limits) -> None:
        self._registry, self._limits = registry, limits
        self._number = self._levels = self._bytes = 0

    def schema(self, number: int) -> Any:
        """The schema of this id.

        :raises ValueError: it is too large. :raises UnknownSchemaError, UnavailableError, ConfigError: as
            ``SchemaRegistry.schema``.
        """
        return self._counted(self._registry.schema(number))

    @contextmanager
    def into(self, reference: Any) -> Iterator[Any]:
        """The schema to which a reference leads. References of this schema are followed within the context.

        :raises ValueError: the references are too many, or too deep, or the schemas are too large together.
        :raises UnknownSchemaError, UnavailableError, ConfigError: as ``SchemaRegistry.schema``.
        """
        self._number += 1
        self._levels += 1
        if self._number > _MOST_REFERENCES or self._levels > _MOST_LEVELS:
            raise ValueError(
                f"the schema has more than {_MOST_REFERENCES} references, or more than {_MOST_LEVELS} within each other"
            )
        try:
            yield self._counted(self._registry.referenced(reference.subject, reference.version))
        finally:
            self._levels -= 1

    def _counted(self, schema: Any) -> Any:
        self._bytes += len(schema.schema_str)
        check_text(self._bytes, self._limits)
        return schema


def check_text(size: int, limits: Limits) -> None:
    """:raises ValueError: the text of a schema is too large."""
    if size > limits.schema_bytes:
        raise ValueError(f"its text has more than iceberg.limits.schema-bytes = {limits.schema_bytes}")
