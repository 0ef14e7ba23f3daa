"""What clusters are sent."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster.packing import Packed


@pytest.fixture(scope="session")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Packed]:
    made = Packed(tmp_path_factory.mktemp("packed"))
    yield made
    made.archive.unlink()
