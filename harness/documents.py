"""A MongoDB collection as Debezium mirrors it, by seed, whose updates come with the changed fields alone. An update changes
the document at random, and what the event says is the difference of both, as MongoDB's change streams write it: dotted paths,
numbers of elements, removed fields, and arrays that are cut off.
"""

from __future__ import annotations

import copy
import json
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

Document = dict[str, Any]
FIELDS = ("_id", "n", "text", "inner", "tags", "lines")
WHOLE: Document = {
    "n": 1,
    "text": "t",
    "inner": {"a": 1, "b": "b", "deep": {"x": 1, "y": "y"}},
    "tags": ["g"],
    "lines": [{"sku": "s", "count": 1, "more": {"k": 1, "marks": [1]}}],
}
"""A document with all fields that there are."""


class Difference:
    """What an update event says of two versions of a document."""

    def __init__(self, old: Document, new: Document) -> None:
        self.updated: dict[str, Any] = {}
        self.removed: list[str] = []
        self.cut: list[dict[str, Any]] = []
        self._documents("", old, new)

    def event(self) -> dict[str, Any]:
        return {
            "updatedFields": json.dumps(self.updated),
            "removedFields": self.removed or None,
            "truncatedArrays": self.cut or None,
        }

    def _documents(self, at: str, old: Document, new: Document) -> None:
        self.removed += [f"{at}{name}" for name in old if name not in new]
        for name, value in new.items():
            self._values(f"{at}{name}", old.get(name), value, name in old)

    def _values(self, at: str, old: Any, new: Any, known: bool) -> None:
        if known and old == new:
            return
        if isinstance(old, dict) and isinstance(new, dict):
            self._documents(f"{at}.", old, new)
        elif isinstance(old, list) and isinstance(new, list):
            if len(new) < len(old):
                self.cut.append({"field": at, "size": len(new)})
            for number, value in enumerate(new):
                self._values(f"{at}.{number}", old[number] if number < len(old) else None, value, number < len(old))
        else:
            self.updated[at] = new


class Collection:
    """Changes its documents at random, and writes the events."""

    def __init__(self, seed: int, keys: int = 6) -> None:
        self.chance, self._keys = random.Random(seed), keys
        self.documents: dict[int, Document] = {}
        self.counts: Counter[str] = Counter()
        self._serial = 0

    def change(self) -> tuple[Document, Document]:
        chance = self.chance
        key = chance.randrange(self._keys)
        if key not in self.documents:
            self.documents[key] = {"_id": key, **self._fields(0.8)}
            return self.event(key, "c", after=self._text(key))
        if chance.random() < 0.1:
            del self.documents[key]
            return self.event(key, "d")
        old = self.documents[key]
        new = self.documents[key] = self._changed(old)
        if chance.random() < 0.2:
            return self.event(key, "u", after=self._text(key))
        difference = Difference(old, new)
        self.counts["patches"] += 1
        for name in difference.updated:
            self.counts["paths"] += "." in name
        self.counts["cuts"] += len(difference.cut)
        self.counts["removed"] += len(difference.removed)
        image = json.dumps(old) if chance.random() < 0.1 else None
        return self.event(key, "u", before=image, updateDescription=difference.event())

    def event(self, key: int, op: str, **more: Any) -> tuple[Document, Document]:
        source = {"connector": "mongodb", "db": "shop", "collection": "orders"}
        sides = {"before": None, "after": None, "updateDescription": None}
        return {"id": str(key)}, {"op": op, "ts_ms": 5, "source": source, **sides, **more}

    def _text(self, key: int) -> str:
        return json.dumps(self.documents[key])

    def _fields(self, share: float) -> Document:
        made = {
            "n": self._number(),
            "text": f"t{self._number()}",
            "inner": {"a": self._number(), "b": f"b{self._number()}", "deep": {"x": self._number(), "y": "y"}},
            "tags": [f"g{self._number()}" for _ in range(self.chance.randrange(4))],
            "lines": [self._line() for _ in range(self.chance.randrange(4))],
        }
        return {name: value for name, value in made.items() if self.chance.random() < share}

    def _line(self) -> Document:
        line: Document = {"sku": f"s{self._number()}", "count": self._number()}
        if self.chance.random() < 0.5:
            line["more"] = {"k": self._number(), "marks": [self._number() for _ in range(self.chance.randrange(3))]}
        return line

    def _number(self) -> int:
        self._serial += 1
        return self._serial

    def _changed(self, old: Document) -> Document:
        new = copy.deepcopy(old)
        for _ in range(self.chance.randrange(1, 4)):
            self._change(new)
        return new

    def _change(self, new: Document) -> None:
        chance = self.chance
        match chance.randrange(8):
            case 0:
                name = chance.choice(FIELDS[1:])
                new.pop(name, None)
            case 1:
                new.update(self._fields(0.3))
            case 2 if "inner" in new:
                new["inner"][chance.choice("ab")] = chance.choice([None, f"v{self._number()}"])
                new["inner"]["a"] = self._number()
            case 3 if "inner" in new:
                inner = new["inner"]
                if "deep" in inner and chance.random() < 0.5:
                    inner["deep"]["x"] = self._number()
                elif "deep" in inner:
                    del inner["deep"]
                else:
                    inner["deep"] = {"x": self._number(), "y": "again"}
            case 4 if "tags" in new:
                self._change_list(new["tags"], lambda: f"g{self._number()}")
            case 5 | 6 if "lines" in new:
                lines = new["lines"]
                if lines and chance.random() < 0.6:
                    self._change_line(chance.choice(lines))
                else:
                    self._change_list(lines, self._line)
            case _:
                new["n"] = self._number()

    def _change_list(self, items: list[Any], make: Callable[[], Any]) -> None:
        match self.chance.randrange(3):
            case 0:
                items.append(make())
            case 1 if items:
                del items[self.chance.randrange(len(items)) :]
            case _ if items:
                items[self.chance.randrange(len(items))] = make()

    def _change_line(self, line: Document) -> None:
        match self.chance.randrange(4):
            case 0 if "more" in line:
                self._change_list(line["more"]["marks"], self._number)
            case 1 if "more" in line:
                line["more"]["k"] = self._number()
            case 2:
                line.pop("count", None)
            case _:
                line["sku"] = f"s{self._number()}"

    def rows(self, *, empty: bool) -> list[tuple[Any, ...]]:
        """The documents as rows of the columns. ``empty``: whether empty arrays and documents count."""
        found = (tuple(plain(each.get(name), empty) for name in FIELDS) for each in self.documents.values())
        return sorted(found, key=repr)


def plain(value: Any, empty: bool) -> Any:
    """A value without fields that are missing or null: a column does not tell them apart."""
    if isinstance(value, dict):
        kept = {name: inner for name, item in value.items() if (inner := plain(item, empty)) is not None}
        return sorted(kept.items()) if kept or empty else None
    if isinstance(value, list):
        return [plain(item, empty) for item in value] if value or empty else None
    return value
