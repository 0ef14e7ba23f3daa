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

    ``targets``: the tables to which the values go as they are. ``unknown``: the treatment of fields without a column.
    They are ignored (``ignore``), ignored after a look-up by folded or mapped names (``look``), or added as columns
    (``add``). ``route``: the text of this dotted field is needed, too; without ``targets`` only this text is needed.
    With neither ``targets`` nor ``route``, values are kept without loss: fractions with every digit if ``decimals``,
    and the order of fields unless ``hides_order`` is true for their type.
    """

    targets: tuple[Target, ...] = ()
    unknown: Literal["ignore", "look", "add"] = "ignore"
    route: str | None = None
    decimals: bool = True
    hides_order: Callable[[pa.DataType], bool] = lambda kind: False
