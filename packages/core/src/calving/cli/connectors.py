"""Converts the connectors of a folder, as Kafka Connect's REST returns them, to files of calving. Asks no service."""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from rich.table import Table as RichTable
from rich.text import Text

from calving.errors import ConfigError
from calving.iceberg.catalog import translate
from calving.model.text import printable
from calving.runtime.checks import check_record_path
from calving.settings import providers
from calving.settings.connect_worker import with_worker
from calving.settings.files import flat, read_json
from calving.settings.keys import TAKEN_OVER
from calving.settings.load import parse

_SERVERS, _CONVERTER = "kafka.bootstrap.servers", "value.converter"
_MASKED = re.compile(r"\*{3,}|\[hidden\]", re.IGNORECASE)
_FOREIGN = re.compile(r"\$\{(?!env:|file:)[\w.-]+:[^}]*\}")
_OF_RECORDS = ("value.converter", "key.converter", "transforms.", "predicates.", "iceberg.topic.")


@dataclass(frozen=True, slots=True)
class Connector:
    """A connector of Kafka Connect. ``place``: the file that it was read from."""

    name: str
    config: Mapping[str, str]
    place: Path

    @property
    def writes_to_iceberg(self) -> bool:
        kind = self.config.get("connector.class", "")
        return not kind or "iceberg" in kind.lower()


@dataclass(frozen=True, slots=True)
class SinkDraft:
    """The sink that takes the place of a connector. ``file``: the sink's file; None if there is none. ``left``: what is
    to be done before the sink can start. ``refusals``: why the connector cannot be taken over as it is.
    """

    name: str
    file: Path | None = None
    left: Sequence[str] = ()
    refusals: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Move:
    """The connectors of a folder. ``others``: those that do not write to Iceberg."""

    drafts: Sequence[SinkDraft]
    others: Sequence[str] = ()

    @property
    def exit_code(self) -> int:
        """That of the worst: 2, if one cannot be taken over; 1, if something is left to do; else 0."""
        if any(each.refusals for each in self.drafts):
            return 2
        return 1 if any(each.left for each in self.drafts) else 0


def convert(folder: Path, out: Path, worker: Mapping[str, str] | None = None) -> Move:
    """Convert every connector in the JSON files of ``folder`` to a file of its own in ``out``.

    A file that is there with other contents is kept. A new one appears as a whole, and only its owner can read it.

    :raises ConfigError: the folder has no JSON file, or ``out`` is the folder itself, or cannot be written to.
    """
    if out.resolve() == folder.resolve():
        raise ConfigError(f"--out is the folder of the connectors, {folder}: name another one for the sinks")
    places = sorted(folder.glob("*.json"))
    if not places:
        raise ConfigError(f"{folder} has no file *.json: save there what Kafka Connect's REST returns")
    connectors: dict[str, Connector] = {}
    drafts: list[SinkDraft] = []
    for place in places:
        try:
            for connector in _connectors(place):
                known = connectors.setdefault(connector.name, connector)
                if known.config != connector.config:
                    raise ConfigError(f"connector {connector.name} is another one in {known.place.name}")
        except ConfigError as error:
            drafts.append(SinkDraft(place.name, refusals=[str(error)]))
    try:
        out.mkdir(parents=True, exist_ok=True)
        drafts += [_draft(each, out, worker) for each in connectors.values() if each.writes_to_iceberg]
    except OSError as error:
        raise ConfigError(f"{error.filename or out}: {error.strerror or error}") from error
    others = [each.name for each in connectors.values() if not each.writes_to_iceberg]
    return Move(sorted(drafts, key=lambda each: each.name), others)


def as_table(move: Move) -> RichTable:
    shown = RichTable("connector", "file", "left to do", "cannot be taken over", show_lines=True)
    for each in move.drafts:
        written = each.file.name if each.file is not None else "-"
        shown.add_row(*map(_cell, ([each.name], [written], each.left, each.refusals)))
    return shown


def summary(move: Move) -> Iterator[str]:
    """The numbers of the table in sentences."""
    refused = sum(1 for each in move.drafts if each.refusals)
    left = sum(1 for each in move.drafts if each.left and not each.refusals)
    ready = len(move.drafts) - refused - left
    yield f"ready: {ready}; something is left to do: {left}; cannot be taken over: {refused}"
    if move.others:
        yield f"not sinks to Iceberg, and left alone: {printable(', '.join(sorted(move.others)))}"


def _cell(texts: Iterable[str]) -> Text:
    """Names and values of connectors are in the texts, so they are no markup."""
    return Text("\n".join(printable(line) for text in texts for line in text.splitlines()))


def _connectors(place: Path) -> Iterator[Connector]:
    """Those of a file: what ``GET /connectors?expand=info``, ``.../NAME`` or ``.../NAME/config`` answers.

    :raises ConfigError: the file cannot be read, or is none of them.
    """
    for named in _expanded(read_json(place)):
        config = named.get("config", named) if isinstance(named, dict) else None
        if not isinstance(config, dict):
            raise ConfigError(f"{place.name} holds no connector: an object of keys, or {{name, config}}")
        keys = flat(config)
        name = str((named.get("name") if config is not named else None) or keys.get("name") or "")
        if not name:
            raise ConfigError(f"{place.name} holds a configuration without a name")
        yield Connector(name, {"name": name, **{k: v for k, v in keys.items() if k != "name"}}, place)


def _expanded(answer: Any) -> list[Any]:
    """The connectors of an answer, each as Connect shows one."""
    infos = [each.get("info") for each in answer.values() if isinstance(each, dict)] if isinstance(answer, dict) else []
    return infos if infos and None not in infos and len(infos) == len(answer) else [answer]


def _draft(connector: Connector, out: Path, worker: Mapping[str, str] | None) -> SinkDraft:
    try:
        keys = dict(connector.config) if worker is None else with_worker(connector.config, worker)
    except ConfigError as error:
        return SinkDraft(connector.name, refusals=[str(error)])
    keys = {key: text for key, text in keys.items() if key not in TAKEN_OVER}
    left = list(_left(keys))
    try:
        _check(keys)
    except ConfigError as error:
        return SinkDraft(connector.name, None, left, [str(error)])
    file = out / f"{quote(connector.name, safe=' ')}.json"
    text = _text(keys)
    if file.exists() and file.read_bytes() != text.encode():
        left.append(f"{file.name} is there with other contents, and was kept: remove it to have it written again")
    elif not file.exists():
        _write(file, text)
    return SinkDraft(connector.name, file, left)


def _left(keys: Mapping[str, str]) -> Iterator[str]:
    """What the keys lack that a start needs."""
    if _SERVERS not in keys:
        yield f"{_SERVERS}: give --worker, or add it"
    if _CONVERTER not in keys:
        yield f"{_CONVERTER}: give --worker, or add it; without it calving reads JSON without a schema"
    if not _names_catalog(keys):
        yield "iceberg.catalog.type: add it; without it the Java sink takes hive, and calving a catalog on this machine"
    for key, text in keys.items():
        if _MASKED.fullmatch(text):
            yield f"{key}: Kafka Connect masks it; put its value in"
        elif (foreign := _FOREIGN.search(text)) is not None:
            yield f"{key}: {foreign[0]} is from a provider that calving lacks; use ${{env:NAME}} or ${{file:PATH:KEY}}"
        elif (reason := _unresolved(key, text)) is not None:
            yield reason


def _unresolved(key: str, text: str) -> str | None:
    try:
        providers.resolved({key: text})
    except ConfigError as error:
        return str(error)
    return None


def _check(keys: Mapping[str, str]) -> None:
    """:raises ConfigError: a key is wrong, or has no counterpart."""
    unresolved = {key for key, text in keys.items() if _unresolved(key, text) is not None}
    sink = parse({_SERVERS: "unknown:9092", **keys}, resolved=not unresolved)
    if not any(key.startswith(_OF_RECORDS) for key in unresolved):  # a converter could take the reference for a value
        check_record_path(sink)
    if _names_catalog(keys):
        translate(sink.catalog)


def _names_catalog(keys: Mapping[str, str]) -> bool:
    return "iceberg.catalog.type" in keys or "iceberg.catalog.catalog-impl" in keys


def _text(keys: Mapping[str, str]) -> str:
    """A configuration as Kafka Connect's REST has it, which can also be given back to Kafka Connect."""
    ordered = dict(sorted(keys.items(), key=lambda each: (each[0] != "name", each[0])))
    return json.dumps({"name": keys["name"], "config": ordered}, indent=2, ensure_ascii=False) + "\n"


def _write(file: Path, text: str) -> None:
    """Write the file, which appears as a whole."""
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=file.parent, prefix=".calving-", delete=False) as made:
        try:
            made.write(text)
            made.flush()
            os.fsync(made.fileno())
            Path(made.name).replace(file)
        except BaseException:
            Path(made.name).unlink()
            raise
