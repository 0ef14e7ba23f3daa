"""Secrets of a configuration are not shown: not by the endpoint of the configuration, not in errors, and not in any text."""

from __future__ import annotations

import base64
import json
import logging
import time
from collections.abc import Callable
from urllib.parse import quote, quote_plus

import pytest

from calving.backend.interface import find
from calving.converters.interface import OPTIONS
from calving.errors import CalvingError, ConfigError, UnavailableError, first_line
from calving.secrets import MaskingFormatter, is_harmless, masked, safe_lines, shown_text, without_secrets
from calving.settings.keys import SinkKeys, TableKeys
from calving.settings.load import parse

LEAST = {"name": "s", "topics": "orders", "iceberg.tables": "db.orders", "kafka.bootstrap.servers": "broker:9092"}
HIDDEN = {
    "iceberg.http.token",
    "iceberg.http.read-token",
    "iceberg.notify.webhook-url",
    "iceberg.control.redis.password",
    "iceberg.control.redis.sentinel-password",
    "iceberg.control.zookeeper.password",
    "iceberg.control.secret",
    "iceberg.control.old-secret",
}
"""The sink's own keys that are secrets."""


def test_the_sinks_own_keys_are_shown_but_for_its_secrets() -> None:
    fields = [*SinkKeys.model_fields.values()]
    for backend in ("kafka", "redis", "zookeeper"):
        fields += find(backend).settings.model_fields.values()
    keys = {str(field.alias) for field in fields}
    keys |= {f"iceberg.table.db.orders.{field.alias}" for field in TableKeys.model_fields.values()}
    assert {key for key in keys if not is_harmless(key)} == HIDDEN & keys


def test_options_of_converters_are_shown_but_for_their_secrets() -> None:
    options = {name for o in OPTIONS.values() for name in (*o.used, *o.harmless, *o.only)}
    hidden = {name for name in options if not is_harmless(f"value.converter.{name}")}
    secret = ("basic.auth.user.info", "bearer.auth.token", "bearer.auth.client.secret", "ssl.key.password")
    assert hidden == {prefix + name for prefix in ("", "schema.registry.") for name in secret}


@pytest.mark.parametrize(
    "key",
    [
        "kafka.ssl.keystore.key",
        "kafka.ssl.key.pem",
        "kafka.sasl.jaas.config",
        "consumer.override.sasl.oauthbearer.client.secret",
        "iceberg.kafka.any.option",
        "iceberg.catalog.adls.connection-string",
        "iceberg.catalog.header.Cookie",
        "iceberg.catalog.header.X-Auth",
        "iceberg.catalog.auth.basic.pass",
        "iceberg.catalog.s3.sse.key",
        "iceberg.catalog.s3.access-key-id",
        "iceberg.catalog.new-option",
        "iceberg.tables.write-props.own",
        "spark.hadoop.fs.s3a.encryption.key",
        "spark.hadoop.fs.azure.sas.container.account",
        "spark.driver.extraJavaOptions",
        "spark.executorEnv.AWS_SECRET_ACCESS_KEY",
        "spark.sql.catalog.prod.credential",
        "spark.authenticate.secret",
        "transforms.mine.salt",
        "predicates.mine.other",
        "value.converter.mine",
        "iceberg.topic.orders.value.converter.basic.auth.user.info",
        "iceberg.control.elsewhere.dsn",
    ],
)
def test_a_key_that_is_not_known_to_be_harmless_is_not_shown(key: str) -> None:
    assert shown_text(key, "CANARY") == "***"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgresql://u:p@ss/w@h/db", "postgresql://***@h/db"),
        ("https://u:p#w@h", "https://***@h"),
        ("mongodb://u:p w?x@h", "mongodb://***@h"),
        ("jdbc:mysql://user:p/w#x@h/db", "jdbc:mysql://***@h/db"),
        ("jdbc:oracle:thin:u/p@h:1521:db", "jdbc:oracle:thin:***@h:1521:db"),
        ("redis://:p/1@a:1,redis://:p@b:2", "redis://***@a:1,redis://***@b:2"),
        ("https://h/x?sig=abc&region=eu&X-Amz-Signature=f", "https://h/x?sig=***&region=eu&X-Amz-Signature=***"),
        ("jdbc:sqlserver://h;databaseName=d;user=u;pwd=p", "jdbc:sqlserver://h;databaseName=d;user=u;pwd=***"),
        ("sc://h:15002/;token=abc;user_id=u", "sc://h:15002/;token=***;user_id=***"),
        ("https://h/#access_token=abc", "https://h/#access_token=***"),
        ("jdbc:mysql://h/d?password=a'b \"c,d&user=u", "jdbc:mysql://h/d?password=***&user=u"),
        ("s3://warehouse/path", "s3://warehouse/path"),
    ],
)
def test_an_address_is_shown_without_login_and_parameters(text: str, shown: str) -> None:
    assert shown_text("iceberg.catalog.uri", text) == shown


PASSWORD = "p@ss/w#r?d x"


@pytest.mark.parametrize(
    "key", ["iceberg.catalog.token", "iceberg.catalog.header.X-Auth", "spark.hadoop.any", "kafka.sasl.password"]
)
@pytest.mark.parametrize("inline", [True, False])
def test_a_secret_is_masked_in_every_text(key: str, inline: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANY", "s3cr3t/with#odd?letters")
    parse({**LEAST, key: "s3cr3t/with#odd?letters" if inline else "${env:ANY}"})
    secret = "s3cr3t/with#odd?letters"
    for form in (secret, quote(secret), quote(secret, safe=""), base64.b64encode(secret.encode()).decode()):
        assert masked(f"refused: {form}, really") == "refused: ***, really"
    assert str(UnavailableError(f"no {secret}")) == "no ***"
    assert first_line(ValueError(f"no {secret}")) == "no ***"
    assert secret not in without_secrets(f"no {secret}", {})


def test_each_long_line_of_a_private_key_is_masked_by_itself() -> None:
    key = "-----BEGIN PRIVATE KEY-----\nMIICdQIBADANBgkq\n  Q0FOQVJZQ0FOQVJZ\r\nhi there\n-----END PRIVATE KEY-----\n"
    parse({**LEAST, "kafka.ssl.key.pem": key})
    assert masked("line MIICdQIBADANBgkq: bad; Q0FOQVJZQ0FOQVJZ") == "line ***: bad; ***"
    assert masked("hi there -----BEGIN PRIVATE KEY-----") == "hi there -----BEGIN PRIVATE KEY-----"


@pytest.mark.parametrize("mark", ["\u061c", "\u200e", "\u200f", "\u202e", "\u2066"])
def test_a_mark_that_turns_the_order_of_text_is_replaced(mark: str) -> None:
    assert safe_lines(f"a{mark}b") == "a?b"


def test_what_a_provider_gave_is_masked_wherever_a_harmless_key_does_not_show_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PW", PASSWORD)
    monkeypatch.setenv("POD_IP", "10.1.2.3")
    monkeypatch.setenv("TOPIC", "orders")
    catalog = {"iceberg.catalog.type": "sql", "iceberg.catalog.uri": "postgresql://u:${env:PW}@h/db"}
    own = {"topics": "${env:TOPIC}", "iceberg.http.advertised-url": "http://${env:POD_IP}:8083/"}
    parse({**LEAST, **catalog, **own, "iceberg.http.port": "8083"})
    assert masked(f"FATAL: {PASSWORD} is wrong") == "FATAL: *** is wrong"
    assert masked("10.1.2.3 reads orders") == "10.1.2.3 reads orders"


def test_a_short_secret_is_masked_as_a_word_and_a_common_one_is_not() -> None:
    parse(
        {
            **LEAST,
            "kafka.sasl.password": "abcd",
            "spark.hadoop.any.option": "true",
            "iceberg.catalog.token": "db.orders",
        }
    )
    assert masked("abcd, abcdef, true, db.orders, https") == "***, abcdef, true, db.orders, https"


@pytest.mark.parametrize(
    "form",
    [str, repr, json.dumps, quote_plus, lambda s: quote(s, safe="").lower(), lambda s: repr({"password": s})],
    ids=["plain", "repr", "JSON", "form", "lower case", "in a dict"],
)
@pytest.mark.parametrize("secret", ['o\'er "the+hill"', "two\nlines/here", "schlüssel~wort=", "1234567890"])
def test_a_secret_is_masked_in_every_form(secret: str, form: Callable[[str], str]) -> None:
    parse({**LEAST, "kafka.sasl.password": secret})
    text = form(secret)
    assert masked(f"<{text}>") in ("<***>", "<'***'>", '<"***">', "<{'password': '***'}>", "<{'password': \"***\"}>")


def test_a_text_of_others_in_a_log_line_is_no_line_of_its_own_and_moves_no_cursor() -> None:
    text = "bad value a\n2026-01-01 INFO calving: all is well\x1b[2J\x9b2J\r\u2028b\u202e"
    line = MaskingFormatter().format(logging.LogRecord("calving", logging.WARNING, "f", 1, text, (), None))
    assert line == "bad value a\n  2026-01-01 INFO calving: all is well?[2J?2J??b?"


def test_the_parts_of_a_credential_and_of_a_jaas_login_are_masked() -> None:
    jaas = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="pl41n-w0rd";'
    parse({**LEAST, "iceberg.catalog.credential": "client-id:cl13nt-s3cret", "kafka.sasl.jaas.config": jaas})
    assert masked("cl13nt-s3cret pl41n-w0rd") == "*** ***"


def test_a_part_of_an_odd_password_is_masked_where_a_library_ends_it_early() -> None:
    parse({**LEAST, "iceberg.catalog.type": "rest", "iceberg.catalog.uri": "http://u:first/second#x@h"})
    assert (
        masked("'u:first' is no host, 'first' no port, second no path")
        == "'***' is no host, '***' no port, *** no path"
    )


def test_the_secrets_of_a_new_configuration_of_a_sink_replace_those_of_the_old_one() -> None:
    parse({**LEAST, "kafka.sasl.password": "the-first-one"})
    parse({**LEAST, "kafka.sasl.password": "the-second-one"})
    assert masked("the-first-one the-second-one") == "the-first-one ***"


def test_a_validated_configuration_masks_nothing_elsewhere() -> None:
    parse({**LEAST, "kafka.sasl.password": "unresolved"}, resolved=False)
    assert masked("unresolved") == "unresolved"


def test_an_error_of_a_key_shows_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANY", "CANARY")
    with pytest.raises(ConfigError, match=r"iceberg\.http\.token: ") as refused:
        parse({**LEAST, "iceberg.http.token": "${env:ANY}"})
    assert "CANARY" not in str(refused.value)


def test_a_traceback_in_the_log_shows_no_secret(caplog: pytest.LogCaptureFixture) -> None:
    parse({**LEAST, "kafka.sasl.password": "CANARY-1"})
    try:
        raise CalvingError("this is CANARY-1") from ValueError("that is CANARY-1")
    except CalvingError:
        logging.getLogger("calving").exception("and CANARY-1")
    text = MaskingFormatter().format(caplog.records[-1])
    assert "Traceback" in text and "CANARY" not in text


@pytest.mark.parametrize("text", ["a" * 60_000, "jdbc:oracle:thin:" + "/" * 60_000, "jdbc:oracle:thin:a/" * 4_000])
def test_a_long_text_is_masked_at_once(text: str) -> None:
    began = time.process_time()
    assert masked(text) == text
    assert time.process_time() - began < 1.0
