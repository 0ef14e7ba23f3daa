"""Sentences about mistakes in a configuration, in place of those of the libraries that find them."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from calving.errors import ConfigError

_UNITS = {"ms": "milliseconds", "bytes": "bytes", "seconds": "seconds"}
_BOUNDS = {
    "greater_than": "more than",
    "greater_than_equal": "at least",
    "less_than": "less than",
    "less_than_equal": "at most",
}
_MASTER = re.compile(
    r"local(\[(\*|\d+)(\s*,\s*\d+)?\])?|local-cluster\[.+\]|yarn|(spark|k8s|mesos)://.+", re.ASCII | re.IGNORECASE
)


def unreadable(path: Path, error: Exception) -> str:
    """Why a file is no configuration, and what to write."""
    if path.suffix.lower() in (".yaml", ".yml"):
        return f"{path}: YAML is not read: write TOML, Kafka Connect's JSON (.json) or .properties"
    if isinstance(error, UnicodeDecodeError):
        return f"{path}: it is not UTF-8 at byte {error.start}"
    if "overwrite" in str(error):
        return (
            f"{path}: {error}: a key without quotes is a path, and goes on below another key; quote such keys, as in"
            ' "iceberg.tables" = "db.t", or write them in a section'
        )
    return f"{path}: {error}"


def wrong_value(key: str, error: Mapping[str, Any]) -> str:
    """What a key's value must be. ``error``: one of pydantic's."""
    kind, bounds = str(error["type"]), error.get("ctx", {})
    unit = next((name for end, name in _UNITS.items() if re.search(rf"[.-]{end}$", key)), "")
    of_unit = f" of {unit}" if unit else ""
    match kind.partition("_")[0]:
        case "int":
            return f"must be a whole number{of_unit}"
        case "float":
            return f"must be a number{of_unit}"
        case "bool":
            return "must be true or false"
        case "literal" | "enum":
            return f"must be {bounds.get('expected')}"
        case "greater" | "less":
            (bound,) = bounds.values()
            return f"must be {_BOUNDS[kind]} {bound} {unit}".rstrip()
    return str(error["msg"]).removeprefix("Value error, ").replace("Input should be", "must be")


def missing(key: str, given: Mapping[str, str], prefix: str) -> str:
    """The end of a sentence about a missing key: the key that may have been meant for it."""
    near = difflib.get_close_matches(key, given, 1, 0.7)
    return f"; is '{prefix}{near[0]}' meant for it?" if near else ""


def check_catalog(catalog: Mapping[str, str]) -> None:
    """:raises ConfigError: the type of the catalog is misspelt."""
    if "type" not in catalog and (hint := missing("type", catalog, "iceberg.catalog.")):
        raise ConfigError(f"iceberg.catalog.type is missing{hint}")


def check_master(spark: Mapping[str, str]) -> None:
    """:raises ConfigError: Spark knows no such master."""
    master = spark.get("spark.master")
    if master is not None and not _MASTER.fullmatch(master):
        raise ConfigError(
            f"spark.master: '{master}' is none of local, local[4], local[*], spark://..., k8s://..., yarn"
        )
