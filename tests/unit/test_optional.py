"""An error about a missing package names the extra that installs it."""

from __future__ import annotations

import importlib
import re
import sys
import tomllib
from pathlib import Path

import pytest

from calving.errors import ConfigError
from calving.iceberg.catalog import open_catalog
from calving.importing import _INSTALLED_BY, reason


@pytest.mark.parametrize(
    ("package", "keys", "extra"),
    [
        ("boto3", {"type": "rest", "uri": "http://127.0.0.1:1", "rest.sigv4-enabled": "true"}, "s3"),
        ("boto3", {"type": "glue"}, "glue"),
        ("thrift", {"type": "hive", "uri": "thrift://127.0.0.1:1"}, "hive"),
        ("psycopg2", {"type": "jdbc", "uri": "jdbc:postgresql://127.0.0.1:1/db"}, "postgres"),
        ("pymysql", {"type": "jdbc", "uri": "jdbc:mysql://127.0.0.1:1/db"}, "mysql"),
    ],
)
def test_a_catalog_that_needs_a_missing_package_names_the_extra(
    monkeypatch: pytest.MonkeyPatch, package: str, keys: dict[str, str], extra: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    loaded = ("pyiceberg.catalog.glue", "pyiceberg.catalog.hive")
    for name in [name for name in sys.modules if name in loaded or name.startswith(f"{package}.")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(ConfigError) as found:
        open_catalog("lake", keys)
    assert f'the package {package} is not installed: pip install "calving[{extra}]"' in str(found.value)


def test_every_extra_that_an_error_names_is_one_of_the_distribution() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "packages/core/pyproject.toml").read_text())["project"]
    named = {found[1] for text in _INSTALLED_BY.values() if (found := re.fullmatch(r"calving\[(.+)\]", text))}
    assert named <= project["optional-dependencies"].keys()


def test_an_export_to_opentelemetry_without_its_packages_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    monkeypatch.delitem(sys.modules, "calving.serving.otel", raising=False)
    for name in [name for name in sys.modules if name.startswith("opentelemetry.")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(ModuleNotFoundError) as found:
        importlib.import_module("calving.serving.otel")
    assert reason(found.value) == 'the package opentelemetry is not installed: pip install "calving[otel]"'
