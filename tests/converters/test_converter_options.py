"""Options of converters: what is accepted, what is refused, and what of them nobody may read."""

from __future__ import annotations

import base64
import json
import logging
from pathlib import Path
from typing import Any

import pytest

from calving.converters.interface import CONVERTERS, converter
from calving.errors import ConfigError, UnavailableError
from calving.runtime.checks import check_record_path
from calving.settings.load import parse
from harness.registry import SchemaRegistry, avro
from tests.converters.decoding import decode
from tests.tls import Authority, Front

URL = {"schema.registry.url": "http://localhost:1"}
PLAIN = {"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}]}


def sink(**keys: str) -> Any:
    plain = {"name": "s", "topics": "t", "iceberg.tables": "db.t", "kafka.bootstrap.servers": "localhost:1"}
    return parse(plain | keys)


@pytest.mark.parametrize("name", CONVERTERS.own)
def test_an_option_that_a_converter_does_not_know_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=r"unknown option 'value\.converter\.colour' of the converter"):
        converter(
            name,
            {**URL, "colour": "red"} if name in ("avro", "protobuf", "json-schema") else {"colour": "red"},
            is_key=False,
        )


@pytest.mark.parametrize("name", [each for each in CONVERTERS.own if each != "json"])
def test_schemas_enable_beside_another_converter_is_ignored_and_logged(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    options = URL if name in ("avro", "protobuf", "json-schema") else {}
    converter(name, {**options, "schemas.enable": "true"}, is_key=True)
    assert "key.converter.schemas.enable has no effect with this converter and is ignored" in caplog.text


def test_the_urls_of_a_registry_may_have_blanks_between_them() -> None:
    converter("avro", {"schema.registry.url": "http://a:8081, http://b:8081 "}, is_key=False)


@pytest.mark.parametrize(
    ("name", "option", "meant"),
    [
        ("json", "schema.enable", "schemas.enable"),
        ("avro", "schema.registry.urls", "schema.registry.url"),
        ("avro", "schema.registry.ssl.truststore.location", "schema.registry.ssl.ca.location"),
        ("protobuf", "int.for.enum", "int.for.enums"),
    ],
)
def test_the_option_that_was_meant_is_named(name: str, option: str, meant: str) -> None:
    with pytest.raises(ConfigError, match=rf"did you mean 'key\.converter\.{meant}'"):
        converter(name, {option: "x"}, is_key=True)


def test_a_wrong_option_is_found_when_the_settings_are_checked() -> None:
    keys = {"iceberg.topic.t.value.converter": "json", "iceberg.topic.t.value.converter.shemas.enable": "true"}
    with pytest.raises(ConfigError, match="did you mean"):
        check_record_path(sink(**keys))


@pytest.mark.parametrize(
    ("name", "option"),
    [
        ("avro", "auto.register.schemas"),
        ("avro", "use.latest.version"),
        ("avro", "connect.meta.data"),
        ("protobuf", "enhanced.protobuf.schema.support"),
        ("protobuf", "optional.for.nullables"),
        ("json-schema", "object.additional.properties"),
    ],
)
def test_an_option_that_changes_nothing_in_reading_is_accepted(name: str, option: str) -> None:
    converter(name, {**URL, option: "true"}, is_key=False)


@pytest.mark.parametrize(
    ("name", "option", "text"),
    [("protobuf", "flatten.unions", "false"), ("json-schema", "json.fail.invalid.schema", "true")],
)
def test_a_value_that_would_be_ignored_is_refused(name: str, option: str, text: str) -> None:
    with pytest.raises(ConfigError, match=rf"{option} = {text} is not supported"):
        converter(name, {**URL, option: text}, is_key=False)


def test_a_flag_is_true_or_false() -> None:
    with pytest.raises(ConfigError, match=r"value\.converter\.schemas\.enable: must be true or false"):
        converter("json", {"schemas.enable": "yes"}, is_key=False)


SECRET = "pa55word"


def with_login(registry: SchemaRegistry) -> str:
    """Two URLs of the registry with a login in each."""
    url = registry.url.replace("://", f"://user:{SECRET}@")
    return f"{url},{url}"


def options(registry: SchemaRegistry) -> dict[str, str]:
    return {"schema.registry.url": with_login(registry), "schema.registry.max.retries": "0"}


def test_the_login_in_the_registry_s_url_is_used(registry: SchemaRegistry) -> None:
    number = registry.register("t-value", json.dumps(PLAIN))
    decode(converter("avro", options(registry), is_key=False), [avro(number, PLAIN, {"id": 1})])
    assert registry.logins == [f"Basic {base64.b64encode(f'user:{SECRET}'.encode()).decode()}"]


@pytest.mark.parametrize("name", ["avro", "protobuf", "json-schema"])
def test_a_dead_letter_does_not_tell_the_registry_s_password(registry: SchemaRegistry, name: str) -> None:
    found = decode(converter(name, options(registry), is_key=False), [b"\x00\x00\x00\x00\x63\x00"])
    assert "has no schema 99" in found.bad[0]
    assert SECRET not in found.bad[0]


def test_an_error_does_not_tell_the_registry_s_password(registry: SchemaRegistry) -> None:
    registry.broken = True
    with pytest.raises(UnavailableError) as failed:
        converter("avro", options(registry), is_key=False).decode([b"\x00\x00\x00\x00\x01\x02"], None)
    assert SECRET not in str(failed.value)


def test_an_error_of_the_connection_does_not_tell_the_registry_s_password() -> None:
    made = converter(
        "avro", {"schema.registry.url": f"http://u:{SECRET}@localhost:1", "max.retries": "0"}, is_key=False
    )
    with pytest.raises(UnavailableError) as failed:
        made.decode([b"\x00\x00\x00\x00\x01\x02"], None)
    assert SECRET not in f"{failed.value} {failed.value.__cause__}"


def test_the_log_of_requests_does_not_tell_the_registry_s_password(
    registry: SchemaRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    caplog.set_level(logging.DEBUG, "httpx2")  # calving's own logging keeps it quiet
    number = registry.register("t-value", json.dumps(PLAIN))
    decode(converter("avro", options(registry), is_key=False), [avro(number, PLAIN, {"id": 1})])
    assert f"schemas/ids/{number}" in caplog.text
    assert SECRET not in caplog.text


@pytest.mark.parametrize("name", ["avro", "protobuf", "json-schema"])
@pytest.mark.parametrize("status", [401, 403])
def test_a_registry_that_refuses_the_login_stops_the_sink(registry: SchemaRegistry, name: str, status: int) -> None:
    registry.refused = status, {"error_code": status, "message": "no"}
    with pytest.raises(ConfigError, match="set a login that may read it"):
        converter(name, options(registry), is_key=False).decode([b"\x00\x00\x00\x00\x01\x00"], None)


def test_a_registry_that_nobody_vouches_for_stops_the_sink(registry: SchemaRegistry, tmp_path: Path) -> None:
    port = int(registry.url.rpartition(":")[2])
    its, other = Authority(tmp_path / "its"), Authority(tmp_path / "other")
    front = Front(port, its.issue("registry"), its.certificate)
    ours = {"ssl.ca.location": str(other.certificate), "max.retries": "0"}
    made = converter("avro", {"schema.registry.url": f"https://localhost:{front.port}", **ours}, is_key=False)
    with pytest.raises(ConfigError, match=r"certificate verify failed.*option ssl\.ca\.location"):
        made.decode([b"\x00\x00\x00\x00\x01\x00"], None)
    front.close()


def test_a_404_that_does_not_name_the_schema_makes_no_bad_records(registry: SchemaRegistry) -> None:
    registry.refused = 404, {"error_code": 404, "message": "HTTP 404 Not Found"}
    with pytest.raises(UnavailableError, match="is the URL right"):
        converter("avro", options(registry), is_key=False).decode([b"\x00\x00\x00\x00\x01\x00"], None)


@pytest.mark.parametrize("url", [f"ftp://u:{SECRET}@localhost", f"http://u:/{SECRET}@localhost"])
def test_a_wrong_url_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(ConfigError) as failed:
        converter("avro", {"schema.registry.url": url}, is_key=False)
    assert SECRET not in str(failed.value)


def test_two_different_logins_are_refused(registry: SchemaRegistry) -> None:
    with pytest.raises(ConfigError, match="leave one out"):
        converter("avro", {**options(registry), "basic.auth.user.info": "other:x"}, is_key=False)


@pytest.mark.parametrize(
    ("key", "value"),
    [("iceberg.control.commit.interval-ms", f"redis://u:{SECRET}@host"), ("iceberg.tables.on-unrouted", SECRET)],
)
def test_a_wrong_setting_is_shown_without_the_login_of_a_url(key: str, value: str) -> None:
    with pytest.raises(ConfigError, match="given") as failed:
        sink(**{key: value})
    assert (SECRET in str(failed.value)) == ("://" not in value)
