"""Loads tables with types, transforms and keys that pyiceberg does not know: its parsers are replaced by some that do.
What pyiceberg accepts is parsed as before. Tables of which calving knows too little are loaded and shown, but not
written.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Any, ClassVar

from pydantic import ValidationError
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortOrder
from pyiceberg.table.statistics import BlobMetadata
from pyiceberg.transforms import UnknownTransform, parse_transform
from pyiceberg.types import IcebergType

from calving.catalogs import version_3
from calving.catalogs.version_3 import ENCRYPTION, transform_of
from calving.errors import ConfigError
from calving.records.foreign import Json, parsed, with_foreign

_KEYS = "encryption-keys"
_parse_file = TableMetadataUtil.parse_raw


def metadata_of(text: str) -> TableMetadata:
    """The metadata in a metadata file.

    :raises Exception: pyiceberg's error, if it is no table's metadata.
    """
    if f'"{_KEYS}"' in text:
        return TableMetadataUtil.parse_obj(_with_foreign(json.loads(text)))
    return parsed(text, _parse_file, lambda found: TableMetadataUtil.parse_obj(_with_foreign(found)))


def install() -> None:
    """Let pyiceberg's catalogs load such tables. Call it once a catalog is open, because the module of REST catalogs is
    imported only then.
    """
    version_3.install()
    TableMetadataUtil.parse_raw = staticmethod(metadata_of)  # type: ignore[assignment, method-assign]
    # Otherwise pyiceberg would write "unknown" in place of the transform's name, and refuse to write the metadata.
    UnknownTransform.__str__ = _name_of  # type: ignore[method-assign, assignment]
    UnknownTransform.can_transform = _can_transform  # type: ignore[method-assign, assignment]
    rest: Any = sys.modules.get("pyiceberg.catalog.rest")
    if rest is not None:
        for name in ("TableResponse", "CommitTableResponse"):
            setattr(rest, name, _lenient(getattr(rest, name)))


def _name_of(transform: UnknownTransform[Any, Any]) -> str:
    return transform._transform


def _can_transform(transform: UnknownTransform[Any, Any], source: IcebergType) -> bool:
    return True  # as in Java: nobody knows which types it takes


def _lenient(response: Any) -> Any:
    """A class of responses with a table's metadata that parses also what pyiceberg does not know."""
    if hasattr(response, "is_lenient"):
        return response

    class Response(response):  # type: ignore[misc, no-any-unimported]
        is_lenient: ClassVar[bool] = True

        @classmethod
        def model_validate_json(cls, text: str, **how: Any) -> Any:
            def build(found: Json) -> Any:
                return response.model_validate({**found, "metadata": metadata_of(json.dumps(found["metadata"]))})

            if f'"{_KEYS}"' in text:
                return build(json.loads(text))
            return parsed(text, partial(response.model_validate_json, **how), build)

    return Response


def _with_foreign(metadata: Mapping[str, Json]) -> dict[str, Json]:
    changed = dict(metadata)
    changed["schemas"] = [with_foreign(schema) for schema in changed.get("schemas", ())]
    if "schema" in changed:
        changed["schema"] = with_foreign(changed["schema"])
    for name in ("partition-specs", "sort-orders"):
        if name in changed:
            changed[name] = [{**each, "fields": [*map(_field, each["fields"])]} for each in changed[name]]
    if "statistics" in changed:
        changed["statistics"] = [
            {**each, "blob-metadata": [*map(_blob, each["blob-metadata"])]} for each in changed["statistics"]
        ]
    keys = changed.get(_KEYS)
    if keys:
        changed["properties"] = {ENCRYPTION: str(keys[0].get("key-id")), **changed.get("properties", {})}
    return changed


def _field(field: Mapping[str, Json]) -> dict[str, Json]:
    """A partition or sort field. One of several columns, or of a transform with a name like a known one, is unknown."""
    sources: list[int] = field.get("source-ids") or []
    if len(sources) > 1 and "source-id" not in field:
        return {
            **field,
            "source-id": sources[0],
            "transform": UnknownTransform(transform_of(field["transform"], sources)),
        }
    with suppress(Exception):  # pyiceberg's validators raise errors of many classes
        parse_transform(field["transform"])
        return dict(field)
    return {**field, "transform": UnknownTransform(field["transform"])}


def _blob(blob: Mapping[str, Json]) -> Json:
    """A part of a statistics file. The specification allows other types than those that pyiceberg takes."""
    with suppress(ValidationError):
        return BlobMetadata.model_validate(blob)
    return BlobMetadata.model_construct(**blob)


def refusal(metadata: TableMetadata, *, rewrites: bool, branch: str = MAIN_BRANCH) -> str | None:
    """Why the branch of the table takes no rows; None if it takes rows.

    ``rewrites``: whether also manifests of former specs are written again, as for deletes.
    """
    if _is_tag(metadata, branch):
        return f"{branch} is a tag of it, not a branch"
    if metadata.properties.get(ENCRYPTION):
        return f"it is encrypted ({ENCRYPTION}), and calving cannot encrypt its files"
    specs = metadata.partition_specs if rewrites else [metadata.spec()]
    fields = [field for spec in specs for field in spec.fields if isinstance(field.transform, UnknownTransform)]
    if not fields:
        return None
    return f"calving does not know the transform {fields[0].transform} of its partition field {fields[0].name}"


def check_takes_rows(name: str, metadata: TableMetadata, *, rewrites: bool, branch: str = MAIN_BRANCH) -> None:
    """:raises ConfigError: the branch of the table takes no rows."""
    why = refusal(metadata, rewrites=rewrites, branch=branch)
    if why is not None:
        is_tag = _is_tag(metadata, branch)
        remedy = "name a branch, or drop the tag" if is_tag else "route its records elsewhere, or not at all"
        raise ConfigError(f"table {name} takes no rows: {why}; {remedy}")


def _is_tag(metadata: TableMetadata, branch: str) -> bool:
    ref = metadata.refs.get(branch)
    return ref is not None and ref.snapshot_ref_type != SnapshotRefType.BRANCH


def known_order(order: SortOrder) -> SortOrder:
    """The sort order, or none if it has a transform that calving does not know: Iceberg does not require that rows are
    sorted.
    """
    unknown = any(isinstance(field.transform, UnknownTransform) for field in order.fields)
    return UNSORTED_SORT_ORDER if unknown else order
