"""Traces fields back through transforms: of which fields of the first values those of the last ones are made."""

from __future__ import annotations

from collections.abc import Container, Iterable
from itertools import combinations

from calving.records.presence import EveryNameBut
from calving.transforms.columns import Sided
from calving.transforms.interface import Transform


def presence_before(steps: Iterable[tuple[Transform, bool]], names: frozenset[str]) -> Container[str]:
    """The names, in lower case, of the fields whose absence is not the same as null in the values that come in, if
    these are the ones in the values that go out. ``steps``: from the last one, each with whether it applies to all.
    """
    former: frozenset[str] | None = names
    required: frozenset[str] | None = frozenset()
    for step, applies_to_all in steps if names else ():
        if isinstance(step, Sided) and step.side == "key":
            continue
        former, required = (each and _before(step, each, applies_to_all) for each in (former, required))
        if required is not None:
            required |= {name.lower() for name in step.required}
    if former is not None:
        return former
    # A value without a field that a later step requires is bad. So its name has to be known here.
    return names if required is None else EveryNameBut(required - names)


def _before(step: Transform, names: frozenset[str], applies_to_all: bool) -> frozenset[str] | None:
    former = step.former(names)
    return former if former is None or applies_to_all else former | names


def parts_of(names: Iterable[str], delimiter: str) -> frozenset[str] | None:
    """The names that this delimiter may have joined; None: any. A part may have the delimiter, too."""
    if not delimiter:
        return None
    steps = [name.split(delimiter) for name in names]
    return frozenset(delimiter.join(of[a:b]) for of in steps for a, b in combinations(range(len(of) + 1), 2))
