"""Projections: which parts of values are needed, so that converters decode only these."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

from calving.records.fields import Target


@dataclass(frozen=True, slots=True)
class Projection:
    """The needed parts of schemaless values, so that a converter decodes only these.

    ``targets``: the values go to these tables as they are. ``unknown``: what fields without a column mean there:
    nothing (``ignore``); nothing, but names have to be looked at (``look``); columns to be added (``add``).
    ``route``: the text of this dotted field is wanted, too; without ``targets`` it alone. Neither: the values must be
    kept without loss, fractions with every digit if ``decimals``, and the order of fields unless ``hides_order`` of
    their type.
    """

    targets: tuple[Target, ...] = ()
    unknown: Literal["ignore", "look", "add"] = "ignore"
    route: str | None = None
    decimals: bool = True
    hides_order: Callable[[pa.DataType], bool] = lambda kind: False
