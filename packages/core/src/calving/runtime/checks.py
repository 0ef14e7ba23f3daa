"""Checks of the settings that need no service: what would otherwise fail late, or only with the first record."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from calving.converters.registry import converter
from calving.errors import ConfigError
from calving.runtime.table_checks import check_creation
from calving.settings.catalogs import check_address
from calving.settings.clients import check_login
from calving.settings.load import Sink
from calving.transforms.chain import Chain
from calving.wording import meant
from calving.writing.formats.registry import FORMATS
from calving.writing.properties import FORMAT, WriteProperties

_FILES = re.compile(
    r"(iceberg\.)?kafka\.(ssl\.(ca|certificate|key|crl|keystore)\.location|sasl\.kerberos\.keytab)"
    r"|iceberg\.http\.tls-(certificate|key)-file|iceberg\.control\.zookeeper\.tls-(ca|certificate|key)"
    r"|(key|value)\.converter\.(schema\.registry\.)?ssl\.(ca|certificate|key)\.location"
    r"|iceberg\.catalog\.(ssl\.cabundle|ssl\.client\.(cert|key)|gcp\.bigquery\.credential-file)"
)
_FOLDERS = re.compile(r".*(ssl\.ca\.location|cabundle)")
_PROPERTIES = [str(field.alias) for field in WriteProperties.model_fields.values()]
_VERSIONS = ("1", "2", "3")


def check_settings(sink: Sink, *, files: bool = True) -> None:
    """As ``check_record_path``; and look at addresses, files, partition terms and properties of tables. ``files``: with
    False, the sink's files may be on another machine.

    :raises ConfigError: one of them is wrong.
    """
    check_login(sink.kafka)
    check_address(sink.catalog)
    for key, path in _files(sink) if files else ():
        _check_file(key, path)
    check_record_path(sink)
    for name in sink.keys.tables:
        check_creation(sink, name)
    _check_properties(sink)


def check_record_path(sink: Sink) -> None:
    """Make every converter and transform once, to find wrong options at the start.

    :raises ConfigError: a converter or transform cannot be made.
    """
    Chain(sink.transforms)
    for topic in sink.converters:
        _check_converters(sink, topic)


def _check_converters(sink: Sink, topic: str) -> None:
    of_topic = sink.converters[topic]
    try:
        converter(of_topic.value.name, of_topic.value.options, is_key=False)
        converter(of_topic.key.name, of_topic.key.options, is_key=True)
    except ConfigError as error:
        if not topic:
            raise
        raise ConfigError(f"iceberg.topic.{topic}: {error}") from error


def _files(sink: Sink) -> Iterator[tuple[str, str]]:
    """The keys that name files, with their files."""
    for key, path in sink.given.items():
        if _FILES.fullmatch(key) and "${" not in path and path not in ("probe", "***"):
            yield key, path


def _check_file(key: str, path: str) -> None:
    if not Path(path).exists():
        raise ConfigError(f"{key}: there is no file {path}: create it, or correct the path")
    if Path(path).is_dir() and not _FOLDERS.fullmatch(key):
        raise ConfigError(f"{key}: {path} is a folder: name the file")


def _check_properties(sink: Sink) -> None:
    """:raises ConfigError: a property for new tables, or for writing, has a value that no table takes."""
    for key, properties in (
        ("iceberg.tables.auto-create-props", sink.create_properties),
        ("iceberg.tables.write-props", sink.write_properties),
    ):
        for name in properties.keys() - {*_PROPERTIES}:
            if hint := meant(name, _PROPERTIES, 0.92, f"{key}."):
                raise ConfigError(f"unknown key '{key}.{name}'{hint}")
        try:
            of_files = WriteProperties.of(properties, "")
            FORMATS.find(of_files.file_format)
        except ConfigError as error:
            text = str(error).removeprefix("table : property ")
            known = text != str(error)
            raise ConfigError(f"{key}.{text}" if known else f"{key}.{FORMAT}: {text}") from error
    version = sink.create_properties.get("format-version", "2")
    if version not in _VERSIONS:
        raise ConfigError(f"iceberg.tables.auto-create-props.format-version: must be 1, 2 or 3 (given: '{version}')")
