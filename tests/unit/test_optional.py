"""What is not installed is named with what installs it."""

from __future__ import annotations

import sys

import pytest

from calving.errors import ConfigError
from calving.iceberg.catalog import open_catalog


def test_a_catalog_that_needs_a_missing_package_names_what_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "boto3", None)
    keys = {"type": "rest", "uri": "http://127.0.0.1:1", "rest.sigv4-enabled": "true"}
    with pytest.raises(ConfigError, match=r'the package boto3 is not installed: pip install "pyiceberg\[glue\]"'):
        open_catalog("lake", keys)
