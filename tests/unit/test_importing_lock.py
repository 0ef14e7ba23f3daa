"""The lock of threads that import an engine or a catalog."""

from __future__ import annotations

import gc
from contextlib import suppress

import pytest

from calving.importing import IMPORTING


@pytest.mark.parametrize("enabled", [True, False])
def test_no_garbage_is_collected_while_it_is_held(enabled: bool) -> None:
    (gc.enable if enabled else gc.disable)()
    try:
        with suppress(ImportError), IMPORTING:
            assert not gc.isenabled()
            raise ImportError("it is not there")
        assert gc.isenabled() == enabled
        with IMPORTING:
            pass
    finally:
        gc.enable()
