"""Values of ``pytest.mark.parametrize`` of which ``make test`` tries a few, and ``make test-long`` the others."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def forms(values: Iterable[Any], short: Collection[Any]) -> list[Any]:
    """All values, and those that are not in ``short`` are marked ``long``."""
    return [value if value in short else pytest.param(value, marks=pytest.mark.long) for value in values]
