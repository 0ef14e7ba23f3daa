"""Field names in the options of transforms."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from calving.model.record_path import TransformSpec

_READ: Mapping[str, tuple[str, ...]] = {
    "Cast": ("spec",),
    "CopyValue": ("source.field",),
    "ExtractField": ("field",),
    "HeaderFrom": ("fields",),
    "MaskField": ("fields",),
    "ReplaceField": ("exclude", "include", "blacklist", "whitelist", "renames"),
    "TimestampConverter": ("field",),
    "ValueToKey": ("fields",),
}
"""The options that name fields of records, by transform. In lists of pairs the name is before the colon."""
_PATHS = "field.syntax.version"
"""The option of ExtractField that makes its field a path."""


def dotted_names(chain: Sequence[TransformSpec]) -> Iterator[str]:
    """Warnings about names with a dot, which many take for a path. As in Kafka Connect, each is the name of one field
    at the top of a record, and without such a field the transform has no effect. There are none behind a step that may
    make fields of such names.
    """
    for step in chain:
        kind = _short(step.type)
        if kind == "Sql" or ":" in step.type or (kind == "Flatten" and "." in step.options.get("delimiter", ".")):
            return
        if _PATHS in step.options:
            continue
        for option in _READ.get(kind, ()):
            names = [name.split(":")[0].strip() for name in step.options.get(option, "").split(",")]
            yield from (_warning(step.name, kind, option, name) for name in names if "." in name.strip("."))


def _short(kind: str) -> str:
    return kind.rpartition(".")[2].partition("$")[0]


def _warning(step: str, kind: str, option: str, name: str) -> str:
    around, _, inner = name.rpartition(".")
    remedy = f"set transforms.{step}.{_PATHS} = V2" if kind == "ExtractField" else "put the transform Flatten before it"
    return (
        f"transforms.{step}.{option}: '{name}' is the name of one field, with a dot in it; the transform does not reach"
        f" a field '{inner}' of an object '{around}'. If you mean that field, {remedy}"
    )
