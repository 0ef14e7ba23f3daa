"""The lock of threads that import an engine or a catalog."""

from __future__ import annotations

import gc
import subprocess
import sys
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


def test_a_process_of_its_own_leaves_what_it_imports_out_of_collections() -> None:
    """In another process: what is frozen stays so."""
    code = """
import gc
from calving.importing import IMPORTING
IMPORTING.keep()
before = gc.get_freeze_count()
with IMPORTING:
    import argparse
kept = gc.get_freeze_count()
import calendar
print(before < kept == gc.get_freeze_count(), gc.isenabled())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "True True\n"
