from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.registry import SchemaRegistry, serving


@pytest.fixture
def registry() -> Iterator[SchemaRegistry]:
    with serving() as found:
        yield found
