"""Catalogs of a JDBC address: what the Java sink was given is what SQLAlchemy gets."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField
from sqlalchemy import make_url

from calving.errors import ConfigError
from calving.iceberg.catalog import open_catalog, translate
from calving.secrets import shown_text


def uri(address: str, **options: str) -> str:
    given = {"type": "jdbc", "uri": address, **{f"jdbc.{key}": value for key, value in options.items()}}
    return translate(given)["uri"]


@pytest.mark.parametrize(
    ("address", "options", "ours"),
    [
        ("jdbc:sqlite:/d/c.db", {}, "sqlite:////d/c.db?timeout=30"),
        ("jdbc:sqlite:/d/c.db?busy_timeout=2500", {}, "sqlite:////d/c.db?timeout=2.5"),
        ("jdbc:sqlite:file:c.db", {"busy_timeout": "1000"}, "sqlite:///c.db?timeout=1"),
        ("jdbc:postgresql://h/db", {}, "postgresql+psycopg2://h/db"),
        ("jdbc:postgresql:db", {}, "postgresql+psycopg2://localhost/db"),
        ("jdbc:postgresql://h:5433/db", {"user": "u", "password": "p@/"}, "postgresql+psycopg2://u:p%40%2F@h:5433/db"),
        (
            "jdbc:postgresql://h/db?user=u&password=p&sslmode=verify-full&sslrootcert=/ca.pem&ApplicationName=x",
            {},
            "postgresql+psycopg2://u:p@h/db?sslmode=verify-full&sslrootcert=%2Fca.pem&application_name=x",
        ),
        ("jdbc:postgresql://h/db?ssl=true", {}, "postgresql+psycopg2://h/db?sslmode=verify-full"),
        ("jdbc:postgresql://h/db", {"currentSchema": "lake"}, "postgresql+psycopg2://h/db?options=-csearch_path%3Dlake"),
        (
            "jdbc:postgresql://a,b:5433/db?targetServerType=primary",
            {},
            "postgresql+psycopg2:///db?target_session_attrs=read-write&host=a%3A5432&host=b%3A5433",
        ),
        ("jdbc:mysql://h:3307/db?useSSL=false", {"user": "u"}, "mysql+pymysql://u:@h:3307/db?ssl_disabled=true"),
        (
            "jdbc:mysql://h/db?sslMode=VERIFY_IDENTITY&serverSslCert=/ca.pem&connectTimeout=5000",
            {},
            "mysql+pymysql://h/db?ssl_check_hostname=true&ssl_ca=%2Fca.pem&connect_timeout=5",
        ),
        (
            "jdbc:mysql://h/db?sslMode=verify_ca&serverSslCert=/ca.pem&useSSL=false",
            {},
            "mysql+pymysql://h/db?ssl_check_hostname=false&ssl_ca=%2Fca.pem",
        ),
        ("jdbc:mysql://h/db?sslMode=preferred", {}, "mysql+pymysql://h/db"),
        (
            "jdbc:postgresql://h/db?ssl=true&sslmode=Require&loginTimeout=9&connectTimeout=5",
            {},
            "postgresql+psycopg2://h/db?sslmode=require&connect_timeout=5",
        ),
        (
            "jdbc:postgresql://h/db?currentSchema=my%20lake&options=-cjit%3Doff",
            {},
            "postgresql+psycopg2://h/db?options=-cjit%3Doff+-csearch_path%3Dmy%5C+lake",
        ),
        ("jdbc:postgresql://h/db?ssl=TRUE", {}, "postgresql+psycopg2://h/db?sslmode=verify-full"),
    ],
)  # fmt: skip
def test_an_address_is_translated_with_its_options(address: str, options: dict[str, str], ours: str) -> None:
    assert uri(address, **options) == ours
    make_url(ours)


@pytest.mark.parametrize(
    ("address", "text"),
    [
        ("jdbc:oracle:thin:@h", "only jdbc:sqlite, jdbc:postgresql and jdbc:mysql are known"),
        ("jdbc:sqlite::memory:", "in memory is gone with its process"),
        ("jdbc:sqlite:/c.db?busy_timeout=soon", "busy_timeout = soon"),
        ("jdbc:sqlite:/c.db?busy_timeout=30²", "busy_timeout = 30²"),
        ("jdbc:postgresql://h/", "write it as jdbc:postgresql://host:port/database"),
        ("jdbc:postgresql://h/db?sslfactory=x", "sslfactory of PostgreSQL's JDBC driver has no counterpart here"),
        ("jdbc:mysql://h/db?sslMode=VERIFY_CA", "VERIFY_CA needs serverSslCert"),
        ("jdbc:mysql://h/db?sslMode=verify_ca", "verify_ca needs serverSslCert"),
        ("jdbc:mysql://h/db?sslMode=verify_identity", "verify_identity needs serverSslCert"),
        ("jdbc:mysql://h/db?sslMode=verify_identity&serverSslCert=", "verify_identity needs serverSslCert"),
        ("jdbc:mysql://h/db?sslMode=VERIFY-CA&serverSslCert=/ca.pem", "VERIFY-CA is no value of sslMode"),
        ("jdbc:mysql://a,b/db", "it names several hosts, but MySQL's driver here takes one"),
        ("jdbc:mysql:loadbalance://a,b/db", "write it as jdbc:mysql://host:port/database"),
        ("jdbc:mysql://h/db?trustCertificateKeyStoreUrl=file:x", "trustCertificateKeyStoreUrl of MySQL's JDBC driver"),
    ],
)
def test_an_address_that_cannot_be_translated_is_refused(address: str, text: str) -> None:
    with pytest.raises(ConfigError, match=text) as found:
        uri(address)
    assert str(found.value).startswith("iceberg.catalog.uri")


def test_an_option_that_changes_nothing_here_is_named_in_the_log_without_its_value(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        assert uri("jdbc:postgresql://h/db?prepareThreshold=0&passfile=secret") == "postgresql+psycopg2://h/db"
    assert "prepareThreshold, passfile" in caplog.text and "secret" not in caplog.text


def test_a_password_in_an_address_is_not_shown() -> None:
    address = "jdbc:postgresql://h/db?user=u&password=hunter2&sslmode=require"
    assert shown_text("iceberg.catalog.uri", address) == address.replace("hunter2", "***")


def test_what_is_under_jdbc_does_not_reach_the_catalog_or_its_tables() -> None:
    given = {"uri": "jdbc:postgresql://h/db", "jdbc.password": "p", "jdbc.user": "u", "jdbc.schema-version": "V1"}
    found = translate({**given, "type": "jdbc", "warehouse": "s3://w", "jdbc.init-catalog-tables": "false"})
    assert found == {
        "type": "sql",
        "uri": "postgresql+psycopg2://u:p@h/db",
        "warehouse": "s3://w",
        "init_catalog_tables": "false",
        "pool_pre_ping": "true",
    }


def test_a_catalog_in_sqlite_opens_by_its_jdbc_address(tmp_path: Path) -> None:
    properties = {
        "catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
        "uri": f"jdbc:sqlite:{tmp_path}/c.db?busy_timeout=30000",
        "warehouse": f"file://{tmp_path}",
        "jdbc.schema-version": "V1",
    }
    catalog = open_catalog("lake", properties)
    catalog.create_namespace("db")
    catalog.create_table("db.t", Schema(NestedField(1, "id", LongType())))
    assert open_catalog("lake", {"type": "sql", "uri": f"sqlite:///{tmp_path}/c.db"}).table_exists("db.t")
