"""What an update of MongoDB has changed in its document (Debezium's ``updateDescription``)."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from calving.records.jsontext import in_plain_words
from calving.records.paths import NUMBER, cut_name
from calving.records.values import Content


def parse(text: str) -> dict[str, Any]:
    """The fields of a document. ``NaN`` and ``Infinity`` are numbers, as Debezium's default mode writes them.

    :raises ValueError: the text is no document.
    """
    try:
        fields = json.loads(text)
    except ValueError as error:
        raise in_plain_words(error) from None
    if not isinstance(fields, dict):
        raise ValueError("not a document")
    return fields


class _Cut(NamedTuple):
    """An array that has lost its last elements: its dotted name, and how many elements are left."""

    name: str
    size: int


def changed(old: Mapping[str, Any] | None, changes: Mapping[str, Any]) -> tuple[dict[str, Any], Content]:
    """The document after an update, made from the document before it. Without that, only the changed fields, by their
    dotted names: those that are gone are null, and for an array that is cut off there is a ``cut_name``.

    :raises ValueError: the changes do not fit the document.
    """
    text = changes.get("updatedFields")
    updated, removed = parse(text) if text else {}, [*(changes.get("removedFields") or ())]
    cuts = [*_cuts(changes.get("truncatedArrays") or ())]
    if old is not None:
        return _applied(old, cuts, updated, removed), "row"
    parts = {cut_name(cut.name, cut.size): None for cut in cuts}
    return {**parts, **updated, **dict.fromkeys(removed)}, "partial row"


def _cuts(arrays: Sequence[Any]) -> Iterable[_Cut]:
    """:raises ValueError: the event does not name an array and how many elements are left."""
    for each in arrays:
        name, size = each.get("field"), each.get("size")
        if not isinstance(name, str) or not isinstance(size, int) or size < 0:
            raise _no_cut(name, size)
        yield _Cut(name, size)


def _no_cut(name: Any, size: Any) -> ValueError:
    return ValueError(f"truncatedArrays: field {name!r}, size {size!r}: not an array and a number of elements")


def _applied(
    old: Mapping[str, Any], cuts: Iterable[_Cut], updated: Mapping[str, Any], removed: Iterable[str]
) -> dict[str, Any]:
    document: dict[str, Any] = copy.deepcopy(dict(old))
    for name, size in cuts:
        around, last = _around(document, name)
        items = around.get(last) if isinstance(around, dict) else _element(around, int(last))
        if not isinstance(items, list):
            raise _no_cut(name, size)
        del items[size:]
    for name, value in updated.items():
        around, last = _around(document, name)
        if isinstance(around, list):
            around.extend([None] * (int(last) + 1 - len(around)))
            around[int(last)] = value
        else:
            around[last] = value
    for name in removed:
        around, last = _around(document, name)
        if isinstance(around, dict):
            around.pop(last, None)
    return document


def _element(items: list[Any], place: int) -> Any:
    return items[place] if place < len(items) else None


def _around(document: dict[str, Any], name: str) -> tuple[Any, str]:
    """The document or array that holds a field, and the field's name there, or its number.

    :raises ValueError: the name leads into neither, or to two fields.
    """
    *outer, last = name.split(".")
    if name in document and outer:
        if outer[0] in document:
            raise ValueError(f"'{name}' may be a field of this name, or one inside of '{outer[0]}'")
        return document, name
    around: Any = document
    for step in outer:
        if isinstance(around, list) and NUMBER.fullmatch(step):
            around = _element(around, int(step))
        elif isinstance(around, dict):
            around = around.setdefault(step, {})
        else:
            break
    if isinstance(around, dict) or (isinstance(around, list) and NUMBER.fullmatch(last)):
        return around, last
    raise ValueError(f"'{name}' was changed, and the document before the update has no object or array around it")
