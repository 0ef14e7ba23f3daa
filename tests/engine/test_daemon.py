"""Spark's Python daemon imports modules from the right places."""

from __future__ import annotations

import sys

import pytest

from calving.engine.daemon import drop_archives


def test_archives_inside_the_installed_package_give_way_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    archives = ["/venv/site/pyspark/python/lib/pyspark.zip", "/venv/site/pyspark/python/lib/py4j-0.10-src.zip"]
    monkeypatch.setattr(sys, "path", [*archives, "/app", "/venv/site"])
    drop_archives()
    assert sys.path == ["/app", "/venv/site"]


def test_archives_of_another_spark_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """An executor of a cluster runs the version of its cluster, whatever is installed beside it."""
    path = ["/opt/spark/python/lib/pyspark.zip", "/app", "/venv/site"]
    monkeypatch.setattr(sys, "path", list(path))
    drop_archives()
    assert sys.path == path
