"""Writes the generated pages of the manual: ``python -m tests.generate_docs [--check]``."""

from __future__ import annotations

import re
import sys
import typing
from pathlib import Path

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from calving.data.properties import BY_COLUMN, WriteProperties
from calving.settings.keys import PREFIXES, TAKEN_OVER, SinkKeys, TableKeys
from calving_kafka.options import KafkaOptions
from calving_redis.options import RedisOptions
from calving_zookeeper.options import ZooKeeperOptions

BACKENDS = {"Kafka": KafkaOptions, "Redis": RedisOptions, "ZooKeeper": ZooKeeperOptions}
PAGE = Path(__file__).parents[1] / "docs" / "configuration.md"

_HEAD = """# Configuration

*This page is generated from the declarations of the keys (`make docs`).*

A sink is one file: TOML, .properties, or the JSON of a Kafka Connect connector as it is. Keys are those of the Iceberg
sink for Kafka Connect, and ours under the same conventions. An unknown key is an error. `${env:NAME}` and
`${file:PATH:KEY}` bring in secrets.
"""


_PROPERTIES = """Properties of a table that say how its files are written; `iceberg.tables.write-props.<property>` sets one
for all tables of the sink, over what the table says. Tables that are created get those under
`iceberg.tables.auto-create-props.`. Others, such as `write.data.path`, `write.object-storage.enabled` and those of
commits, are honoured as Iceberg documents them.
"""


def page() -> str:
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
    parts.append("## Left out\n\nKeys that a Kafka Connect file may have and that mean nothing here.\n")
    parts.append("| key | why |\n| --- | --- |\n" + "".join(f"| `{k}` | {why} |\n" for k, why in TAKEN_OVER.items()))
    return "\n".join(parts)


def _table(model: type[BaseModel], prefix: str) -> str:
    rows = "".join(
        f"| `{prefix}{field.alias}` | {_kind(field)} | {_default(field)} | {field.description} |\n"
        for field in model.model_fields.values()
        if not field.exclude
    )
    return "| key | type | default | meaning |\n| --- | --- | --- | --- |\n" + rows


def _by_column() -> str:
    rows = "".join(f"| `{name}` | text | {default} | {text} |\n" for name, (default, text) in BY_COLUMN.items())
    return "| by column | type | default | meaning |\n| --- | --- | --- | --- |\n" + rows


def _kind(field: FieldInfo) -> str:
    kind = field.annotation
    options = [o for o in typing.get_args(kind) if o is not type(None)] if typing.get_origin(kind) is not tuple else []
    literals = [str(v) for o in [kind, *options] if typing.get_origin(o) is typing.Literal for v in typing.get_args(o)]
    if literals:
        return " \\| ".join(f"`{v}`" for v in literals)
    text = str(kind)
    names = (("tuple", "list"), ("bool", "boolean"), ("int", "integer"))
    return next((shown for name, shown in names if re.search(rf"\b{name}\b", text)), "text")


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    if field.default in (None, (), ""):
        return ""
    return f"`{str(field.default).lower() if isinstance(field.default, bool) else field.default}`"


def main() -> int:
    if "--check" in sys.argv:
        if PAGE.read_text() != page():
            print(f"{PAGE} is out of date: run make docs")
            return 1
        return 0
    PAGE.write_text(page())
    return 0


if __name__ == "__main__":
    sys.exit(main())
