"""What ``help`` says of a package: its main loop or a worked example, and the examples hold."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "packages").glob("*/src"))
PACKAGES = sorted(
    ".".join(path.parent.relative_to(source).parts) for source in SOURCES for path in source.rglob("__init__.py")
)


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_says_what_it_does_with_its_loop_or_an_example(package: str) -> None:
    module = importlib.import_module(package)
    text = module.__doc__ or ""
    assert len(text.strip().splitlines()) >= 5
    assert "::\n" in text or ">>> " in text
    assert doctest.testmod(module, optionflags=doctest.ELLIPSIS).failed == 0
