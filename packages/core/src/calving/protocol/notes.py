"""Table properties by which a ledger stays true when its snapshots expire or a branch is rolled back (R1, R2a, R3)."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import replace
from itertools import islice

from calving.model.coverage import decode_coverage, encode_coverage
from calving.protocol.ledger import (
    GONE_OFFSETS,
    LEDGER_DOUBT,
    LEDGER_SNAPSHOT,
    LEDGERS_AT,
    LOG_ID,
    MISSING_OFFSETS,
    OFFSETS,
    SETTLED_OFFSETS,
    SOURCE_OFFSETS,
    VALID_THROUGH,
    Ledger,
    LedgerKey,
    source_entries,
)
from calving.protocol.picks import source_of
from calving.protocol.rollback import Line, SnapshotPlace

_CARRIED = {VALID_THROUGH, LOG_ID, SOURCE_OFFSETS, SETTLED_OFFSETS, MISSING_OFFSETS}
_MOST_SNAPSHOTS, _MOST_LEDGERS = 500, 5
"""The most snapshots for which a ledger is kept, and the most ledgers: every version of the metadata repeats them."""


def committed(
    key: LedgerKey, line: Line, properties: Mapping[str, str], ledger: Ledger, place: SnapshotPlace
) -> dict[str, str]:
    """The table properties to set in the commit that adds the snapshot ``place`` with ``ledger``. ``line``,
    ``properties``: the table on which the commit is built.
    """
    answered = {key.of_table(GONE_OFFSETS): "{}", key.of_table(LEDGER_DOUBT): ""}
    return {
        **{name: value for name, value in answered.items() if properties.get(name, value) != value},
        **key.properties(ledger, place),
        **_kept(key, line, properties),
    }


def brought_back(key: LedgerKey, ledger: Ledger, place: SnapshotPlace | None) -> dict[str, str]:
    """Table properties that drop ``gone`` and ``doubt`` from the ledger, as if the table had never held those offsets.
    ``place``: the head of the branch.
    """
    return {
        **key.properties(replace(ledger, gone={}, doubt=None), place),
        key.of_table(GONE_OFFSETS): "{}",
        key.of_table(LEDGER_DOUBT): "",
    }


def looked(key: LedgerKey, line: Line, properties: Mapping[str, str]) -> dict[str, str]:
    """The table properties to set after a look at the table as it is: empty if they are right already.

    They must be set only if the head is still the head of ``line``. A sink that has written no source offsets has
    nothing to keep, and during a recovery only ``calving recover`` writes.
    """
    if properties.get(key.of_table(LOG_ID)) != key.log_id or key.gets_all_again(properties):
        return {}
    ledger, head, last = key.read(line, properties), line.head, key.last_commit(properties)
    is_known = (ledger.doubt, ledger.gone) == (key.doubt(properties), _gone(key, properties))
    # So a later expiry of the sink's snapshots below the head leaves no doubt.
    is_at_head = last is None or head is None or head.place.id == last.id
    if is_known and is_at_head:
        return {}
    return {
        **{key.of_table(name): value for name, value in source_entries(ledger).items()},
        key.of_table(GONE_OFFSETS): encode_coverage(ledger.gone),
        key.of_table(LEDGER_DOUBT): str(ledger.doubt or ""),
        key.of_table(LEDGER_SNAPSHOT): str(head.place if head is not None else last or ""),
        **_kept(key, line, properties),
    }


def _gone(key: LedgerKey, properties: Mapping[str, str]) -> object:
    return decode_coverage(properties.get(key.of_table(GONE_OFFSETS), "{}"))


def _kept(key: LedgerKey, line: Line, properties: Mapping[str, str]) -> dict[str, str]:
    """The table property with the ledgers at snapshots of others. It is needed if no snapshot of the sink is left below
    them, or a cherry-pick has added to the ledger: after a rollback to such a snapshot, only this property tells what
    the table holds. Empty if the property is right already.
    """
    ids = _with_the_same_rows(line)
    own, known = key.own(line.snapshots), list(key.ledgers_at(properties))
    if not ids or (own is not None and own.place.id in ids) or any(ids[0] in snapshots for snapshots, _ in known):
        return {}
    ledger = key.read(line, properties)
    is_shown = own is not None and key.held_at(own) == {tp: ledger.held(tp) for tp in ledger.source}
    if ledger.doubt is not None or is_shown:
        return {}
    left = [([i for i in snapshots if i not in ids], entries) for snapshots, entries in known]
    ledgers = [(ids, source_entries(ledger)), *((snapshots, entries) for snapshots, entries in left if snapshots)]
    said = [{"snapshots": snapshots, **entries} for snapshots, entries in ledgers[:_MOST_LEDGERS]]
    return {key.of_table(LEDGERS_AT): json.dumps(said, separators=(",", ":"))}


def _with_the_same_rows(line: Line) -> list[int]:
    """The ids of the head and of those below it that have the same rows of the sink: down to the newest cherry-pick."""
    same = []
    for snapshot in islice(line.snapshots, _MOST_SNAPSHOTS):
        same.append(snapshot.place.id)
        if source_of(snapshot) is not None:
            break
    return same


def carried(summary: Mapping[str, str]) -> dict[str, str]:
    """The summary entries that stay true in a next snapshot that changes no row: every sink's ledger, and the
    valid-through time. The entries that name the commit are left out.
    """
    return {name: value for name, value in summary.items() if name in _CARRIED or name.startswith(OFFSETS)}


def carried_on(
    properties: Mapping[str, str], branches: Collection[str], branch: str, head: int | None, place: SnapshotPlace
) -> dict[str, str]:
    """The table properties to set in a commit that changes no row on the ``head`` of a branch, and adds the snapshot
    ``place``: ledgers of every sink that describe the head describe that snapshot, too (E3).
    """
    return {
        name: str(place)
        for name, value in properties.items()
        if name.startswith(f"{LEDGER_SNAPSHOT}.")
        and (known := SnapshotPlace.parse(value)) is not None
        and known.id == head
        and _branch_of(name, branches) == branch
    }


def _branch_of(name: str, branches: Collection[str]) -> str:
    _, at, branch = name.rpartition("@")
    return branch if at and branch in branches else "main"
