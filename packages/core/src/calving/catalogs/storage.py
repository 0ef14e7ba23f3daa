"""Reaches the storage of tables by what the settings and the catalog say. What the properties of a table say of its
storage counts for nothing: whoever may write to one table could otherwise name an address for the sink's credentials,
or a class that every process of the sink calls.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from threading import local
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.io import FileIO

_RESPONSES = ("_response_to_table", "_response_to_staged_table")
"""What makes tables of the answers of a REST catalog, with the settings and credentials that it gives for each."""


def by_settings_alone(catalog: Catalog) -> None:
    """Have a catalog make the FileIO of each table of the catalog's own properties, and of what a REST catalog's server
    gives beside the table's metadata. pyiceberg lets the table's properties count for more than these.
    """
    open_storage: Any = catalog._load_file_io
    answer = local()  # tables are loaded in parallel

    def load(properties: Mapping[str, str] | None = None, location: str | None = None) -> FileIO:
        given = getattr(answer, "given", {})
        return open_storage(given, location)  # type: ignore[no-any-return]

    def with_given(make: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        def table_of(identifier: Any, response: Any) -> Any:
            lent = rest._resolve_storage_credentials(response.storage_credentials, response.metadata_location)
            answer.given = {**response.config, **lent}
            try:
                return make(identifier, response)
            finally:
                answer.given = {}

        return table_of

    rest: Any = catalog
    rest._load_file_io = load
    for name in _RESPONSES:
        if hasattr(rest, name):
            setattr(rest, name, with_given(getattr(rest, name)))
