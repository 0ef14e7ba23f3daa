"""The names of a catalog's properties: those that somebody reads are known, and those that nobody reads are named."""

from __future__ import annotations

import importlib
import logging
import re

import pytest

from calving.errors import ConfigError
from calving.settings.catalog_names import READ
from calving.settings.load import parse

_GROUPS = re.compile(r"(s3|client|adls|gcs|hdfs|hf|glue|hive|rest)[.-][\w.-]+|lock-check-[\w-]+|[a-z-]+-mode")
_MODULES = ("io", "io.pyarrow", "catalog", "catalog.rest", "catalog.hive", "catalog.glue")
GOOD = {"name": "s", "topics": "t", "iceberg.tables": "db.t", "kafka.bootstrap.servers": "broker:9092"}
REST = {"type": "rest", "uri": "http://catalog:8181"}


def parsed(catalog: dict[str, str]) -> None:
    parse(GOOD | {f"iceberg.catalog.{name}": text for name, text in catalog.items()})


@pytest.mark.parametrize("module", _MODULES)
def test_every_property_that_pyiceberg_reads_is_known(module: str) -> None:
    constants = vars(importlib.import_module(f"pyiceberg.{module}"))
    named = {text for name, text in constants.items() if name.isupper() and isinstance(text, str)}
    assert {text for text in named if _GROUPS.fullmatch(text)} <= READ


@pytest.mark.parametrize(
    "catalog",
    [
        REST | {"header.X-Own": "x"},
        REST | {"auth.type": "entra", "auth.entra.managed_identity_client_id": "x"},
        {"adls.sas-token.account.dfs.core.windows.net": "x"},
        {"type": "jdbc", "uri": "jdbc:mysql://db/iceberg", "jdbc.sslMode": "REQUIRED"},
        REST | {"io-impl": "org.apache.iceberg.aws.s3.S3FileIO", "s3.multipart.part-size-bytes": "1", "clients": "2"},
        REST | {"cache-enabled": "false", "table-default.format-version": "2", "rest.client.max-retries": "3"},
        REST | {"py-io-impl": "mine.FileIO", "mine": "x"},
        {"py-catalog-impl": "mine.Catalog", "mine": "x"},
    ],
)
def test_what_others_read_is_accepted(catalog: dict[str, str], caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        parsed(catalog)
    assert not caplog.messages


@pytest.mark.parametrize(
    ("catalog", "warning"),
    [
        (
            {"type": "sql", "uri": "sqlite:////c.db", "token": "x"},
            "iceberg.catalog.token has no effect with iceberg.catalog.type = sql: only catalogs of type rest read it",
        ),
        (
            REST | {"glue.id": "1"},
            "iceberg.catalog.glue.id has no effect with iceberg.catalog.type = rest: only catalogs of type glue read it",
        ),
        (
            REST | {"s3.sse.type": "kms"},
            "iceberg.catalog.s3.sse.type has no effect here: write iceberg.catalog.s3.server-side-encryption",
        ),
        (
            {"catalog-impl": "org.apache.iceberg.rest.RESTCatalog", "uri": "http://h", "jdbc.user": "x"},
            "iceberg.catalog.jdbc.user has no effect with iceberg.catalog.type = rest: only catalogs of type jdbc read it",
        ),
    ],
)
def test_what_has_no_effect_is_warned_of(
    catalog: dict[str, str], warning: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        parsed(catalog)
    assert caplog.messages == [warning]


def test_seconds_of_a_login_are_a_whole_number() -> None:
    login = {f"auth.oauth2.{name}": "x" for name in ("client_id", "client_secret", "token_url", "refresh_margin")}
    with pytest.raises(
        ConfigError, match=r"^iceberg\.catalog\.auth\.oauth2\.refresh_margin: must be a whole number of"
    ):
        parsed(REST | {"auth.type": "oauth2"} | login)
