"""What is not installed is named with what installs it."""

from __future__ import annotations

import importlib
import sys

import pytest

from calving.errors import ConfigError
from calving.iceberg.catalog import open_catalog
from calving.optional import reason


def test_a_catalog_that_needs_a_missing_package_names_what_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "boto3", None)
    keys = {"type": "rest", "uri": "http://127.0.0.1:1", "rest.sigv4-enabled": "true"}
    with pytest.raises(ConfigError, match=r'the package boto3 is not installed: pip install "pyiceberg\[glue\]"'):
        open_catalog("lake", keys)


def test_an_export_to_opentelemetry_without_its_packages_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    monkeypatch.delitem(sys.modules, "calving.serving.otel", raising=False)
    for name in [name for name in sys.modules if name.startswith("opentelemetry.")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(ModuleNotFoundError) as found:
        importlib.import_module("calving.serving.otel")
    assert reason(found.value) == 'the package opentelemetry is not installed: pip install "calving[otel]"'
