"""The order of the rows of new files, as the settings name it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

_Z_ORDER = re.compile(r"z-order\s*\((.*)\)", re.IGNORECASE)
Z_COLUMNS = "strategy z-order needs 2 to 4 columns of a primitive type"


@dataclass(frozen=True, slots=True)
class Strategy:
    """``bin-pack``: rows keep their order. ``sort``: the table's sort order. ``z-order``: rows with similar values of
    all these ``columns`` are neighbours.
    """

    name: Literal["bin-pack", "sort", "z-order"]
    columns: tuple[str, ...] = ()

    @staticmethod
    def parse(text: str) -> Strategy:
        """:raises ValueError: there is no such strategy."""
        match text.strip().lower():
            case "bin-pack":
                return Strategy("bin-pack")
            case "sort":
                return Strategy("sort")
        found = _Z_ORDER.fullmatch(text.strip())
        if found is None:
            raise ValueError("must be bin-pack, sort, or z-order(column, column) with 2 to 4 columns")
        columns = tuple(column.strip() for column in found[1].split(","))
        if not 2 <= len(columns) <= 4 or "" in columns:
            raise ValueError(f"{Z_COLUMNS}: write z-order(column, column)")
        if len({*columns}) < len(columns):
            raise ValueError(f"{Z_COLUMNS}, and has one of them twice")
        return Strategy("z-order", columns)
