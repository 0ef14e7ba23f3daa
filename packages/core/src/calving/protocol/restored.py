"""The snapshots that a restoration has removed from the metadata, because the snapshot that it made has their files.

That snapshot names them in its summary. So later restorations, also of other sinks, still know what the removed ones
did: nothing but to add files; and what a snapshot above one of them had added to the ledger.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from calving.model.tables import SnapshotPlace
from calving.protocol.ledger import entry_of
from calving.protocol.ledger_key import MISSING_OFFSETS, OFFSETS, SETTLED_OFFSETS, SOURCE_OFFSETS
from calving.protocol.rollback import Ancestor

RESTORED_SNAPSHOTS = "calving.restored-snapshots"
_LONGEST = 100_000
"""The greatest length of the entry, characters: every version of the metadata repeats it."""
_LEDGER = {SOURCE_OFFSETS, SETTLED_OFFSETS, MISSING_OFFSETS}


def restored_entry(snapshots: Iterable[Ancestor]) -> dict[str, str]:
    """The summary entry of a snapshot that has the files of these, oldest first; empty if there are none. If there are
    very many, it names the newest, and those that they have taken over themselves.
    """
    told = [each for snapshot in snapshots for each in (*restored_by(snapshot.summary), snapshot)]
    texts: list[str] = []
    for text in map(_text, reversed(told)):
        if sum(map(len, texts)) + len(text) > _LONGEST:
            break
        texts.append(text)
    return {RESTORED_SNAPSHOTS: f"[{','.join(reversed(texts))}]"} if texts else {}


def restored_by(summary: Mapping[str, str]) -> list[Ancestor]:
    """The snapshots that one with this summary has taken over; of their summaries only the ledgers are left.

    :raises TableTroubleError: the entry is not what calving writes.
    """
    return entry_of(summary, RESTORED_SNAPSHOTS, _decode, "[]")


def _text(snapshot: Ancestor) -> str:
    ledger = {name: text for name, text in snapshot.summary.items() if name in _LEDGER or name.startswith(OFFSETS)}
    said = {"id": snapshot.place.id, "number": snapshot.place.number, "parent": snapshot.parent, "ledger": ledger}
    return json.dumps(said, separators=(",", ":"))


def _decode(text: str) -> list[Ancestor]:
    return [
        Ancestor(
            SnapshotPlace(int(said["id"]), int(said["number"])),
            None if said["parent"] is None else int(said["parent"]),
            {str(name): str(each) for name, each in said["ledger"].items()},
        )
        for said in json.loads(text)
    ]
