"""The options of the data source: the keys of a sink's table and catalog without their prefix, and its own."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, TypeVar

from calving.errors import ConfigError
from calving.model.tables import MAIN
from calving.secrets import know, looks_secret, without_logins
from calving.settings import files
from calving.settings.catalogs import check_address, check_catalog
from calving.settings.validation import validate
from calving.wording import meant_key
from calving_spark.keys import ReadKeys, SourceKeys, WriteKeys, check_entry

_CATALOG = "catalog."
_PREFIXES = (_CATALOG, "write-props.", "auto-create-props.")
_OF_SPARK = {"path": "table", "queryname": None, "checkpointlocation": None, "outputmode": None, "numrows": None}
"""Options that Spark adds, with the key that each stands for; None: for none of this source."""
_PARAMETER = re.compile(r"[?&;]([^=&;?#\s]+)=([^&;#\s]+)")
_OF_PIPELINES = {
    "keys": "id-columns",
    "sequence_by": "order-field",
    "sequence-by": "order-field",
    "apply_as_deletes": "apply-as-deletes",
}

Keys = TypeVar("Keys", bound=SourceKeys)


@dataclass(frozen=True, slots=True)
class SourceOptions(Generic[Keys]):
    """The checked options. ``query_name``: that of the streaming query."""

    keys: Keys
    catalog: Mapping[str, str]
    write_properties: Mapping[str, str]
    create_properties: Mapping[str, str]
    query_name: str | None = None
    given: Mapping[str, str] = field(default_factory=dict)
    """The options as they were given, with the references to secrets, but without what they refer to: these travel."""


class WriteOptions(SourceOptions[WriteKeys]):
    """The options of a write."""

    __slots__ = ()

    @property
    def sink(self) -> str | None:
        """The name of the stream that somebody has chosen."""
        return self.keys.sink or self.query_name


class ReadOptions(SourceOptions[ReadKeys]):
    """The options of a read."""

    __slots__ = ()


def read(given: Mapping[str, str]) -> WriteOptions:
    """The options of a write as Spark hands them over.

    :raises ConfigError: an option is unknown, is wrong, or shows a secret.
    """
    options = WriteOptions(*_parsed(given, WriteKeys))
    _check_changes(options.keys)
    if options.query_name is not None and options.keys.sink is None:
        _check_name(options.query_name)
    return options


def read_of_scan(given: Mapping[str, str]) -> ReadOptions:
    """The options of a read as Spark hands them over.

    :raises ConfigError: an option is unknown, is wrong, or shows a secret.
    """
    options = ReadOptions(*_parsed(given, ReadKeys))
    keys = options.keys
    places = {"snapshot-id": keys.snapshot_id, "as-of-timestamp": keys.as_of_timestamp}
    named = [name for name, value in places.items() if value is not None]
    named += ["branch"] if keys.branch != MAIN else []
    if len(named) > 1:
        raise ConfigError(f"options {' and '.join(named)} name two states of the table: leave one out")
    return options


def _parsed(
    given: Mapping[str, str], model: type[Keys]
) -> tuple[Keys, Mapping[str, str], Mapping[str, str], Mapping[str, str], str | None, Mapping[str, str]]:
    """The fields of ``SourceOptions``."""
    options = {key.lower(): text for key, text in given.items()}
    _refuse_secrets(options)
    raw, provided = files.resolved(_gathered(options))
    plain = {key: text for key, text in raw.items() if not key.startswith(_PREFIXES)}
    handed_on = [
        {key.removeprefix(prefix): text for key, text in raw.items() if key.startswith(prefix)} for prefix in _PREFIXES
    ]
    _refuse_unknown(plain, options, model)
    known = _aliases(model)
    keys = validate(model, {key: text for key, text in plain.items() if key in known}, "option ")
    catalog, write_properties, create_properties = handed_on
    know(
        f"spark {keys.table}",
        [(f"iceberg.catalog.{key}", text) for key, text in catalog.items()],
        {key.replace(_CATALOG, "iceberg.catalog.", 1): texts for key, texts in provided.items()},
    )
    if not catalog:
        raise ConfigError("option catalog.type is missing: rest, sql, hive or glue; and catalog.uri, its address")
    check_catalog(catalog)
    check_address(catalog)
    return keys, catalog, write_properties, create_properties, options.get("queryname"), dict(given)


def _gathered(options: Mapping[str, str]) -> dict[str, str]:
    """The keys of the file that the options name, and above them the options without those that Spark adds."""
    raw = files.read(Path(options["config"])) if "config" in options else {}
    for key, text in options.items():
        name = _OF_SPARK.get(key, key)
        if name is not None and options.get(name, text) != text:
            raise ConfigError(f"option {name} is {options[name]}, and start, save or load names {text}: leave one out")
        if name is not None:
            raw[name] = text
    return _in_our_words(raw)


def _in_our_words(raw: Mapping[str, str]) -> dict[str, str]:
    """Pipelines' words for changes, as the keys that they are.

    :raises ConfigError: a key is there by two names.
    """
    ours: dict[str, str] = {}
    for word, text in raw.items():
        key = _OF_PIPELINES.get(word, word)
        if key in ours or (key != word and key in raw):
            raise ConfigError(f"option {word} is {key}, which is there, too: leave one out")
        ours[key] = text
    if "keys" in raw:
        ours.setdefault("upsert-mode-enabled", "true")
    return ours


def _check_changes(keys: WriteKeys) -> None:
    """:raises ConfigError: keys of changes contradict each other, or have no effect."""
    if keys.cdc_field and keys.apply_as_deletes:
        raise ConfigError("options cdc-field and apply-as-deletes both say which rows delete: leave one out")
    given = {"id-columns": keys.id_columns, "order-field": keys.order_field}
    idle = next((name for name, value in given.items() if value), None)
    if keys.mutations is None and idle is not None:
        raise ConfigError(
            f"option {idle} has no effect on rows that are added: set upsert-mode-enabled = true, cdc-field or"
            " apply-as-deletes"
        )


def _check_name(query_name: str) -> None:
    try:
        check_entry(query_name)
    except ValueError as error:
        raise ConfigError(f"the query's name {query_name!r} {error}: set the option sink") from error


def _refuse_secrets(options: Mapping[str, str]) -> None:
    """Spark shows options in plans and in event logs (S17).

    :raises ConfigError: an option shows a secret.
    """
    for key, text in options.items():
        name = f"iceberg.{key}" if key.startswith(_CATALOG) else key
        shows = looks_secret(name) and not files.has_reference(text)
        login = without_logins(text)[1]
        shows |= login is not None and ":" in login and not files.has_reference(login)
        if shows or _has_secret_parameter(text):
            raise ConfigError(
                f"option {key} shows a secret in Spark's plans and event logs: write ${{env:NAME}} or"
                " ${file:PATH:KEY}, or put the key into the file of the option config"
            )


def _has_secret_parameter(text: str) -> bool:
    """Whether a URL has a parameter that shows a secret, such as ``?password=...``."""
    given = _PARAMETER.findall(text) if "://" in text else ()
    return any(looks_secret(name) and not files.has_reference(value) for name, value in given)


def _refuse_unknown(plain: Mapping[str, str], options: Mapping[str, str], model: type[SourceKeys]) -> None:
    """One file may serve reads and writes; an option that has no effect may not be given."""
    known = _aliases(model)
    of_others = [key for each in (WriteKeys, ReadKeys) for key in _aliases(each) if key not in known]
    for key in plain:
        if key in of_others:
            if key in options:
                raise ConfigError(f"option {key} is for {'reads' if model is WriteKeys else 'writes'}: leave it out")
        elif key not in known:
            hint = meant_key(key, [*known, *_PREFIXES, "catalog.type", "catalog.uri", "catalog.warehouse"])
            raise ConfigError(f"option {key}: unknown{hint or '; there are ' + ', '.join(known)}")


def _aliases(model: type[SourceKeys]) -> list[str]:
    return [str(each.alias) for each in model.model_fields.values()]
