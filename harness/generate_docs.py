"""Writes the generated pages of the manual: ``python -m harness.generate_docs``."""

from __future__ import annotations

import re
import typing
from html import escape
from pathlib import Path

import typer.core
import typer.main
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from calving.cli.main import app
from calving.serving.metrics import METRICS
from calving.settings.keys import PREFIXES, TAKEN_OVER, SinkKeys, TableKeys
from calving.threads import EXIT_CODE
from calving.writing.properties import BY_COLUMN, WriteProperties
from calving_kafka.options import KafkaOptions
from calving_redis.options import RedisOptions
from calving_spark.keys import GROUPS, ReadKeys, SourceKeys, WriteKeys
from calving_zookeeper.options import ZooKeeperOptions
from harness.live_pictures import FOLDER, pictures

BACKENDS: dict[str, type[BaseModel]] = {"Kafka": KafkaOptions, "Redis": RedisOptions, "ZooKeeper": ZooKeeperOptions}
DOCS = Path(__file__).parents[1] / "docs"
PAGE = DOCS / "reference" / "configuration.md"
COMMANDS = DOCS / "reference" / "commands.md"
METRICS_PAGE = DOCS / "reference" / "metrics.md"

_HEAD = """# Configuration

*This page is generated from the declarations of the keys (`make docs`).*

A sink is one file: TOML, .properties, or the JSON of a Kafka Connect connector as it is. Keys are those of the Iceberg
sink for Kafka Connect, and ours under the same conventions. An unknown key is an error. `${env:NAME}` and
`${file:PATH:KEY}` bring in secrets.
"""


_SECTIONS = {
    "Name and topics": ("name", "topics", "iceberg.connect.group-id", "iceberg.source."),
    "Tables": ("iceberg.tables",),
    "Rows that change": (
        "iceberg.tables.cdc-field",
        "iceberg.tables.upsert-mode-enabled",
        "iceberg.tables.row-deletes",
        "iceberg.tables.inserts",
        "iceberg.tables.order-",
        "iceberg.tables.delete-mode",
        "iceberg.tables.soft-delete-field",
        "iceberg.tables.tombstones",
        "iceberg.tables.on-truncate",
        "iceberg.tables.truncate-field",
        "iceberg.key-cache.",
    ),
    "Maintenance": ("iceberg.maintenance.",),
    "Commits and coordination": (
        "iceberg.catalog",
        "iceberg.control.",
        "iceberg.coordinator.",
        "iceberg.tables.look-ms",
    ),
    "Engine and batches": ("iceberg.engine", "iceberg.batch.", "iceberg.stalled-after-ms", "iceberg.stop-timeout-ms"),
    "Converters and transforms": ("value.converter", "key.converter", "transforms", "predicates"),
    "Bad records": ("errors.",),
    "Status server, metrics and notices": ("iceberg.http.", "iceberg.otel.", "iceberg.notify."),
    "Limits": ("iceberg.limits.",),
    "Keys of Kafka Connect": ("connector.class", "tasks.max"),
}
"""The sections of the sink's keys, and the prefixes of their keys."""

_PROPERTIES = """These properties of a table say how its files are written.
`iceberg.tables.write-props.<property>` sets a property for all tables of the sink, and overrides the table's own value.
A table that the sink creates gets the properties under `iceberg.tables.auto-create-props.`. Other properties, such as
`write.data.path`, `write.object-storage.enabled` and those of commits, are honoured as Iceberg documents them.
"""


_SPARK = """The options of [`format("calving")`](../how-to/spark.md) for streams and batches of Spark.
"""


def page() -> str:
    """The reference of keys."""
    parts, told = [_HEAD], set[str]()
    for title, keys in _grouped(SinkKeys).items():
        parts += [f"## {title}\n", *(_entry(key, field, told) for key, field in keys.items())]
    parts += ["## One table\n", *_entries(TableKeys, told, "iceberg.table.<table>.")]
    for name, options in BACKENDS.items():
        parts += [f"## {name} backend\n", *_entries(options, told)]
    parts += ["## Data source of Spark\n", _SPARK, *_entries(SourceKeys, told)]
    parts += [
        _entry(key, each, told) for model in (WriteKeys, ReadKeys) for key, each in _own(model, SourceKeys).items()
    ]
    parts.append("| option | meaning |\n| --- | --- |\n" + "".join(f"| `{k}` | {v} |\n" for k, v in GROUPS.items()))
    parts += ["## Table properties\n", _PROPERTIES, *_entries(WriteProperties, told), *_by_column(), "## Handed on\n"]
    parts.append("| prefix | goes to |\n| --- | --- |\n" + "".join(f"| `{p}` | {t} |\n" for p, t in PREFIXES.items()))
    parts.append("## Left out\n\nKeys that a Kafka Connect file may have and that have no effect here.\n")
    parts.append("| key | why |\n| --- | --- |\n" + "".join(f"| `{k}` | {why} |\n" for k, why in TAKEN_OVER.items()))
    return "\n".join(parts)


def _own(model: type[BaseModel], base: type[BaseModel]) -> dict[str, FieldInfo]:
    return {key: field for key, field in _keys(model).items() if key not in _keys(base)}


def _keys(model: type[BaseModel]) -> dict[str, FieldInfo]:
    return {str(field.alias): field for field in model.model_fields.values() if not field.exclude}


def _grouped(model: type[BaseModel]) -> dict[str, dict[str, FieldInfo]]:
    """The keys by the title of their section: that with the longest prefix of the key."""
    groups: dict[str, dict[str, FieldInfo]] = {title: {} for title in _SECTIONS}
    prefixes = {prefix: title for title, own in _SECTIONS.items() for prefix in own}
    for key, field in _keys(model).items():
        groups[prefixes[max((prefix for prefix in prefixes if key.startswith(prefix)), key=len)]][key] = field
    return groups


def _entries(model: type[BaseModel], told: set[str], prefix: str = "") -> list[str]:
    return [_entry(prefix + key, field, told) for key, field in _keys(model).items()]


def _entry(key: str, field: FieldInfo, told: set[str]) -> str:
    """A key with its meaning. ``told``: the keys that have an anchor; several backends share some keys."""
    anchor = "" if key in told else f'<a id="{key}"></a>'
    told.add(key)
    return anchor + _paragraph(key, _kind(field), _default(field), str(field.description))


def _by_column() -> list[str]:
    return [_paragraph(key, kind, default, meaning) for key, (kind, default, meaning) in BY_COLUMN.items()]


def _paragraph(key: str, kind: str, default: str, meaning: str) -> str:
    short = "required" if default == "required" else f"default {default}" if default else ""
    return f"**`{key}`** · {kind}{' · ' * bool(short)}{short}<br>\n{meaning}\n"


def _kind(field: FieldInfo) -> str:
    kind = field.annotation
    options = [o for o in typing.get_args(kind) if o is not type(None)] if typing.get_origin(kind) is not tuple else []
    literals = [str(v) for o in [kind, *options] if typing.get_origin(o) is typing.Literal for v in typing.get_args(o)]
    if literals:
        return " or ".join(f"`{v}`" for v in literals)
    text = str(kind)
    names = (("tuple", "list"), ("bool", "boolean"), ("int", "integer"), ("float", "number"))
    return next((shown for name, shown in names if re.search(rf"\b{name}\b", text)), "text")


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    if field.default in (None, (), ""):
        return ""
    return f"`{str(field.default).lower() if isinstance(field.default, bool) else field.default}`"


_COMMANDS = f"""# Commands

*This page is generated from the command line (`make docs`).*

`FILE` is the sink's [configuration](configuration.md). A command that cannot do its work prints one sentence on standard
error: what is wrong, where, and what to do.

| exit code | meaning |
| --- | --- |
| 0 | The command did its work. `calving run` was stopped cleanly, or had caught up. |
| 1 | The command failed: an operator has to act, or a service cannot be reached. The sentence says which. |
| 2 | The command line, the configuration, something that the configuration points at, or what is installed here has to be changed: a later version of calving has written what this one would misread, or a program is missing. |
| 3 | `calving status`: the sink is DEGRADED, or no commit cycle of it has ended yet. |
| {EXIT_CODE} | `calving run` ended itself because something hangs, or because the JVM of `spark-submit` has ended; the last line of the log says which. Start it again. |

| environment variable | meaning |
| --- | --- |
| `CALVING_LOG_LEVEL` | The log level: `DEBUG`, `INFO` (the default), `WARNING` or `ERROR`. The log goes to standard error. |
| `CALVING_TRACEBACK` | If set, an error ends with its traceback. |
"""


def commands_page() -> str:
    """The reference of commands."""
    group = typer.main.get_command(app)
    assert isinstance(group, typer.core.TyperGroup)
    rows = "".join(f"| [`calving {name}`](#calving-{name}) | {_help(c)} |\n" for name, c in group.commands.items())
    parts = [_COMMANDS, "| command | what it does |\n| --- | --- |\n" + rows]
    return "\n".join([*parts, *(_command(name, command) for name, command in group.commands.items())])


def _help(command: typing.Any) -> str:
    return " ".join(str(command.help or "").split())


def _command(name: str, command: typing.Any) -> str:
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    options = [p for p in command.params if p.param_type_name == "option"]
    words = ["calving", name, *(p.name.upper() for p in arguments), *map(_synopsis, options)]
    text = f"## calving {name}\n\n```\n{' '.join(words)}\n```\n\n{_help(command)}\n"
    if not command.params:
        return text
    rows = "".join(f"| `{p.name.upper()}` | {escape(p.help)} |\n" for p in arguments)
    rows += "".join(f"| `{_usage(p)}` | {escape(p.help)}{_option_default(p)} |\n" for p in options)
    return text + "\n| | |\n| --- | --- |\n" + rows


def _usage(option: typing.Any) -> str:
    return f"{option.opts[0]}" if option.is_flag else f"{option.opts[0]} {option.name.upper()}"


def _synopsis(option: typing.Any) -> str:
    text = _usage(option) + (" ..." if option.multiple else "")
    return text if option.required else f"[{text}]"


def _option_default(option: typing.Any) -> str:
    return "" if option.default in (None, False) else f" Default: `{option.default}`."


_METRICS = """# Metrics

*This page is generated from the declarations of the metrics (`make docs`).*

Every worker with a [status server](http.md) has them at `/metrics`. Units are seconds, bytes and records; times are
seconds since the epoch. Every series has the label `sink`, the sink's name, beside the labels below; for
[OpenTelemetry](http.md#opentelemetry) it is an attribute. So many sinks can share one job. Counters begin at 0 with the process. Values by partition cover the partitions that the worker
holds. Values by table cover every table that the worker has read of in the control log since its start. With more than
1,000 partitions, lag is by topic, with the partition `all`. With more than 500 tables, the remaining tables are one
table, `other`.
"""


def metrics_page() -> str:
    """The reference of metrics."""
    rows = "".join(
        f"| `{m.name}` | {m.kind} | {', '.join(f'`{label}`' for label in m.labels)} | {m.text} |\n" for m in METRICS
    )
    return f"{_METRICS}\n| name | type | labels | meaning |\n| --- | --- | --- | --- |\n{rows}"


def main() -> None:
    METRICS_PAGE.write_text(metrics_page())
    PAGE.write_text(page())
    COMMANDS.write_text(commands_page())
    for name, picture in pictures().items():
        (FOLDER / name).write_text(picture)


if __name__ == "__main__":
    main()
