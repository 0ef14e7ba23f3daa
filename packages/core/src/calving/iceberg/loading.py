"""Loads many tables at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from calving.errors import AccessDeniedError, UnavailableError
from calving.iceberg.catalog import find_table, table_id

_TOGETHER = 16
"""How many tables are loaded in parallel: a sink may have hundreds of tables, and its catalog may be slow."""


def look_for(catalog: Catalog, names: Iterable[str]) -> dict[str, Table | UnavailableError | None]:
    """For each name its table, None if there is no such table, or the error if the table cannot be loaded. Loads in
    parallel.
    """

    def find(name: str) -> Table | UnavailableError | None:
        try:
            return find_table(catalog, table_id(name))
        except UnavailableError as error:
            return error

    wanted = list(dict.fromkeys(names))
    with ThreadPoolExecutor(_TOGETHER, thread_name_prefix="calving-tables") as pool:
        return dict(zip(wanted, pool.map(find, wanted), strict=True))


def _refuse(name: str, error: UnavailableError) -> None:
    raise error


def find_tables(
    catalog: Catalog,
    names: Iterable[str],
    known: Mapping[str, Table],
    refuse: Callable[[str, UnavailableError], None] = _refuse,
    witness: str | None = None,
) -> tuple[dict[str, Table | None], dict[str, UnavailableError]]:
    """The tables of these names, loaded in parallel, and the errors of known tables that cannot be loaded. If at least
    one table can be loaded, a table that cannot be loaded is taken from ``known``: one broken table must not stop the
    others (C4).

    ``refuse`` takes the name of a table that is not in ``known`` and cannot be loaded, with the error; by default it
    raises the error. ``witness``: a table that could be loaded before. If all are denied, and it can be loaded now,
    then the catalog denies only these.

    :raises UnavailableError: no table can be loaded; or the error of ``refuse``.
    """
    tables: dict[str, Table | None] = {}
    troubled: dict[str, UnavailableError] = {}
    loaded = look_for(catalog, names)
    are_all_lost = all(isinstance(each, UnavailableError) for each in loaded.values())
    if loaded and witness is not None and all(isinstance(each, AccessDeniedError) for each in loaded.values()):
        are_all_lost = isinstance(look_for(catalog, [witness])[witness], UnavailableError)
    for name, each in loaded.items():
        if not isinstance(each, UnavailableError):
            tables[name] = each
        elif are_all_lost:
            raise each
        elif name in known:
            tables[name], troubled[name] = known[name], each
        else:
            refuse(name, each)
    return tables, troubled
