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
from calving.runtime.watch import EXIT_CODE
from calving.serving.metrics import METRICS
from calving.settings.keys import PREFIXES, TAKEN_OVER, SinkKeys, TableKeys
from calving.writing.properties import BY_COLUMN, WriteProperties
from calving_kafka.options import KafkaOptions
from calving_redis.options import RedisOptions
from calving_zookeeper.options import ZooKeeperOptions

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


_PROPERTIES = """These properties of a table say how its files are written.
`iceberg.tables.write-props.<property>` sets a property for all tables of the sink, and overrides the table's own value.
A table that the sink creates gets the properties under `iceberg.tables.auto-create-props.`. Other properties, such as
`write.data.path`, `write.object-storage.enabled` and those of commits, are honoured as Iceberg documents them.
"""


def page() -> str:
    """The reference of keys."""
    parts = [
        _HEAD,
        "## The sink\n",
        _table(SinkKeys, ""),
        "## Per table\n",
        _table(TableKeys, "iceberg.table.<table>."),
    ]
    for name, options in BACKENDS.items():
        parts += [f"## {name} backend\n", _table(options, "")]
    parts += ["## Table properties\n", _PROPERTIES]
    parts += [_table(WriteProperties, ""), _by_column(), "## Handed on\n"]
    parts.append("| prefix | goes to |\n| --- | --- |\n" + "".join(f"| `{p}` | {t} |\n" for p, t in PREFIXES.items()))
    parts.append("## Left out\n\nKeys that a Kafka Connect file may have and that have no effect here.\n")
    parts.append("| key | why |\n| --- | --- |\n" + "".join(f"| `{k}` | {why} |\n" for k, why in TAKEN_OVER.items()))
    return "\n".join(parts)


def _table(model: type[BaseModel], prefix: str) -> str:
    rows = "".join(
        f'| <a id="{prefix}{field.alias}"></a>`{prefix}{field.alias}` | {_kind(field)} | {_default(field)} | {field.description} |\n'
        for field in model.model_fields.values()
        if not field.exclude
    )
    return "| key | type | default | meaning |\n| --- | --- | --- | --- |\n" + rows


def _by_column() -> str:
    rows = "".join(f"| `{name}` | {' | '.join(columns)} |\n" for name, columns in BY_COLUMN.items())
    return "| by column | type | default | meaning |\n| --- | --- | --- | --- |\n" + rows


def _kind(field: FieldInfo) -> str:
    kind = field.annotation
    options = [o for o in typing.get_args(kind) if o is not type(None)] if typing.get_origin(kind) is not tuple else []
    literals = [str(v) for o in [kind, *options] if typing.get_origin(o) is typing.Literal for v in typing.get_args(o)]
    if literals:
        return " \\| ".join(f"`{v}`" for v in literals)
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
| 2 | The command line, the configuration, or something that the configuration points at has to be changed. |
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
seconds since the epoch. Counters begin at 0 with the process. Values by partition cover the partitions that the worker
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


if __name__ == "__main__":
    main()
