"""Converts the connectors of a folder, as Kafka Connect's REST returns them, to files of calving. Asks no service."""

from __future__ import annotations

import hashlib
import json
import os
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

from rich.table import Table as RichTable
from rich.text import Text

from calving.errors import ConfigError
from calving.iceberg.catalog import translate
from calving.model.text import printable, printable_lines
from calving.runtime.checks import check_record_path, check_settings
from calving.settings import files
from calving.settings.connect import with_worker
from calving.settings.files import flat, read_json
from calving.settings.keys import TAKEN_OVER
from calving.settings.load import parse

_SERVERS, _CONVERTER = "kafka.bootstrap.servers", "value.converter"
_MASKED = re.compile(r"\*{3,}|\[hidden\]", re.IGNORECASE)
_OF_RECORDS = ("value.converter", "key.converter", "transforms.", "predicates.", "iceberg.topic.")
_LONGEST_STEM, _DIGITS = 200, 16
"""Of the names of files: most file systems take 255 bytes."""


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
    entries = [each for place in places for each in _connectors(place)]
    drafts = [each for each in entries if isinstance(each, SinkDraft)]
    copies = _by_name(each for each in entries if isinstance(each, Connector))
    sinks = {name: those for name, those in copies.items() if any(each.writes_to_iceberg for each in those)}
    plans = [_plan(those, worker) for those in sinks.values()]
    drafts += _written(_with_groups_of_their_own(plans), out)
    return Move(sorted(drafts, key=lambda each: each.name), [name for name in copies if name not in sinks])


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
    return Text("\n".join(map(printable_lines, texts)))


def _by_name(connectors: Iterable[Connector]) -> dict[str, list[Connector]]:
    copies: dict[str, list[Connector]] = {}
    for each in connectors:
        copies.setdefault(each.name, []).append(each)
    return copies


def _connectors(place: Path) -> Iterator[Connector | SinkDraft]:
    """Those of a file: what ``GET /connectors?expand=info``, ``.../NAME`` or ``.../NAME/config`` answers. What is none
    of them is a refusal, and the others of the file count.
    """
    try:
        answers = _expanded(read_json(place), place)
    except ConfigError as error:
        yield SinkDraft(place.name, refusals=[str(error)])
        return
    for where, named in answers.items():
        try:
            yield _connector(named, where, place)
        except ConfigError as error:
            yield SinkDraft(where, refusals=[str(error)])


def _connector(named: Any, where: str, place: Path) -> Connector:
    """:raises ConfigError: it is no connector."""
    config = named.get("config", named) if isinstance(named, dict) else None
    if not isinstance(config, dict):
        raise ConfigError(f"{where} holds no connector: an object of keys, or {{name, config}}")
    keys = flat(config)
    name = str((named.get("name") if config is not named else None) or keys.get("name") or "")
    if not name:
        raise ConfigError(f"{where} holds a configuration without a name")
    keys = {"name": name, **{key: text for key, text in keys.items() if key != "name"}}
    for key, text in keys.items():
        try:
            (key + text).encode()
        except UnicodeEncodeError as error:
            raise ConfigError(f"{where}: {key} holds half a character (\\ud800 to \\udfff): write it anew") from error
    return Connector(name, keys, place)


def _expanded(answer: Any, place: Path) -> dict[str, Any]:
    """The connectors of an answer, each as Connect shows one, by where it is."""
    entries = answer if isinstance(answer, dict) else {}
    if not any(isinstance(each, dict) and "info" in each for each in entries.values()):
        return {place.name: answer}
    infos = {name: each.get("info") if isinstance(each, dict) else None for name, each in entries.items()}
    return {f"{place.name}, {name}": info for name, info in infos.items()}


@dataclass(frozen=True, slots=True)
class _Plan:
    """A connector as a sink, before anything is written. ``group``: the sink's; None if it is not known."""

    name: str
    keys: Mapping[str, str] = field(default_factory=dict)
    left: Sequence[str] = ()
    refusals: Sequence[str] = ()
    group: str | None = None


def _plan(copies: Sequence[Connector], worker: Mapping[str, str] | None) -> _Plan:
    """``copies``: the connectors of one name."""
    connector = copies[0]
    if any(each.config != connector.config for each in copies):
        places = " and ".join(sorted({each.place.name for each in copies}))
        refusal = f"connector {connector.name} has different configurations in {places}: keep the one that runs"
        return _Plan(connector.name, refusals=[refusal])
    try:
        keys = dict(connector.config) if worker is None else with_worker(connector.config, worker)
    except ConfigError as error:
        return _Plan(connector.name, refusals=[str(error)])
    keys = {key: text for key, text in keys.items() if key not in TAKEN_OVER}
    left = list(_left(keys))
    try:
        return _Plan(connector.name, keys, left, group=_checked_group(keys))
    except ConfigError as error:
        return _Plan(connector.name, keys, left, [str(error)])


def _with_groups_of_their_own(plans: Sequence[_Plan]) -> Iterator[_Plan]:
    """The plans, with refusals of those that share a group: sinks of one group share their positions."""
    for plan in plans:
        others = [each.name for each in plans if each.group == plan.group and each is not plan]
        if plan.group is None or not others:
            yield plan
            continue
        refusal = (
            f"group {plan.group} is also that of {', '.join(sorted(others))}: two sinks of one Kafka cannot share"
            " positions; if these connectors read from different ones, convert each from a folder of its own"
        )
        yield replace(plan, refusals=[*plan.refusals, refusal])


def _written(plans: Iterable[_Plan], out: Path) -> list[SinkDraft]:
    """:raises ConfigError: the folder or a file cannot be written."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        return [_draft(each, out) for each in plans]
    except OSError as error:
        raise ConfigError(f"{error.filename or out}: {error.strerror or error}") from error


def _draft(plan: _Plan, out: Path) -> SinkDraft:
    if plan.refusals:
        return SinkDraft(plan.name, None, plan.left, plan.refusals)
    left = list(plan.left)
    file, text = out / _file_name(plan.name), _text(plan.keys)
    if file.exists() and file.read_bytes() != text.encode():
        left.append(f"{file.name} is there with other contents, and was kept: remove it to have it written again")
    elif not file.exists():
        _write(file, text)
    return SinkDraft(plan.name, file, left)


def _file_name(name: str) -> str:
    """A name for every connector's file that every file system takes."""
    stem = quote(name, safe=" ")
    if len(stem) > _LONGEST_STEM:
        digest = hashlib.sha256(name.encode()).hexdigest()[:_DIGITS]
        stem = f"{stem[: _LONGEST_STEM - _DIGITS - 1]}-{digest}"
    return f"{stem}.json"


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
        elif (reason := _unresolved(key, text)) is not None:
            yield reason


def _unresolved(key: str, text: str) -> str | None:
    try:
        files.resolved({key: text})
    except ConfigError as error:
        return str(error)
    return None


def _checked_group(keys: Mapping[str, str]) -> str:
    """The group of the sink. :raises ConfigError: a key is wrong, or has no counterpart."""
    unresolved = {key for key, text in keys.items() if _unresolved(key, text) is not None}
    sink = parse({_SERVERS: "unknown:9092", **keys}, resolved=not unresolved)
    if not unresolved:
        check_settings(sink, files=False)
    elif not any(key.startswith(_OF_RECORDS) for key in unresolved):  # a converter could take the reference for a value
        check_record_path(sink)
    if _names_catalog(keys):
        translate(sink.catalog)
    return sink.group


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
