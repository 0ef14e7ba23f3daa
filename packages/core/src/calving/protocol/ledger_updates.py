"""The table properties to set with a commit, after a look at a table, and by an operator's command: they repeat the
newest ledger, so that it stays true when its snapshots expire or a branch is rolled back (R1, R2a, R3).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import reduce
from itertools import islice

from calving.model.marks import TableMark
from calving.model.offsets import Coverage, decode_coverage, encode_coverage, furthest, intersection, less, union
from calving.model.tables import SnapshotPlace
from calving.protocol.ledger import Ledger, encode_control
from calving.protocol.ledger_key import (
    DISCARDED_OFFSETS,
    FORMER_NAMES,
    GONE_OFFSETS,
    LEDGER_DOUBT,
    LEDGER_SNAPSHOT,
    LEDGERS_AT,
    LOG_ID,
    ROLLBACK_ANSWERED,
    SOURCE_OFFSETS,
    LedgerKey,
    source_entries,
)
from calving.protocol.replacement import SEEN_SEQUENCE, LogExtent, has_begun_again, seen_sequence
from calving.protocol.rollback import Line, RollbackNote, source_of

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
        **_trimmed(key, ledger, properties),
    }


def brought_back(
    key: LedgerKey, ledger: Ledger, properties: Mapping[str, str], place: SnapshotPlace | None
) -> dict[str, str]:
    """Table properties that drop ``gone`` and ``doubt`` from the ledger, as if the table had never held those offsets.
    What was forgotten stays gone. ``place``: the head of the branch.
    """
    ledger = replace(ledger, gone=ledger.forgotten, doubt=None)
    return {
        **key.properties(ledger, place),
        key.of_table(GONE_OFFSETS): encode_coverage(ledger.gone),
        key.of_table(DISCARDED_OFFSETS): encode_coverage(_discarded_in(key, ledger, properties)),
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
    return _as_it_is(key, line, properties, ledger)


def rolled_back(
    key: LedgerKey, line: Line, properties: Mapping[str, str], note: RollbackNote, *, waits: bool = False
) -> dict[str, str]:
    """The table properties to set in the commit of ``calving rollback`` that makes the head of ``line`` the head of the
    branch, or finds it there. If the ``note`` answers for the offsets that are gone, no doubt is left either, unless
    the table ``waits`` for a recovery: that one answers.
    """
    ledger = key.read(line, properties)
    if not waits and not less(ledger.gone, note.forgotten):
        ledger = replace(ledger, doubt=None)
    return {**_as_it_is(key, line, properties, ledger), key.of_table(ROLLBACK_ANSWERED): str(note)}


def of_both_names(key: LedgerKey, line: Line, properties: Mapping[str, str], former: str) -> Ledger:
    """The offsets that a table holds and lacks of a renamed sink. If one name has taken the table over from the other,
    its properties count alone, because those of the other are older. Else the sink was renamed by an earlier version,
    or now. If it has committed under its present name already, its topics of now are those of that name.
    """
    before, own = key.named(former).with_former(properties), key.with_former(properties)
    if before.took_over(key.owner):
        return before.read(line, properties)
    now = own.read(line, properties)
    if own.took_over(former):
        return now
    said = before.read(line, properties)
    return said.joined(now) if not now.source else said.of_topics({tp.whole for tp in now.source}).joined(now)


def replaced(
    key: LedgerKey, line: Line, properties: Mapping[str, str], before: TableMark, extent: LogExtent
) -> dict[str, str]:
    """The table properties to set when somebody has replaced a table while the sink committed to it, and the catalog
    shows an older state than ``before``. They say what the table has lost, as after a rollback. Empty if the branch has
    not begun again: then the whole catalog may have gone back.

    The discarded commits had read what the leader has read, or what others have told it. As after a rollback, their
    entries are not committed once more: the control offsets go on from where they were.
    """
    ledger = key.read(line, properties)
    if not ledger.gone or not has_begun_again(key, line, properties, ledger):
        return {}
    known = {p: min(offset, extent.read.get(p, 0)) for p, offset in (before.control or {}).items()}
    control = furthest(ledger.control, known)
    held = {tp: ledger.held(tp) for tp in ledger.source}
    there = union(union(held, ledger.gone), extent.waiting_from(control))
    discarded = less(extent.covered, there)
    ledger = replace(ledger, gone=union(ledger.gone, discarded))
    return {
        **_as_it_is(key, line, properties, ledger),
        key.of_table(DISCARDED_OFFSETS): encode_coverage(union(discarded, _discarded_in(key, ledger, properties))),
        key.of_table(SEEN_SEQUENCE): str(max(before.sequence, seen_sequence(key, properties))),
        key.of_table(key.offsets): encode_control(control),
        key.of_table(LOG_ID): key.log_id,
    }


def renamed(key: LedgerKey, former: str, last: int, properties: Mapping[str, str]) -> dict[str, str]:
    """The table properties with the ``former`` name of the sink, and with those before it. ``last``: the table's last
    sequence number. Of two names only the later one names the other.
    """
    before = key.named(former).with_former(properties)
    names = {**dict(key.with_former(properties).former), **dict(before.former), former: last}
    said = {key: names, **({before: dict(before.former)} if before.took_over(key.owner) else {})}
    for each in said.values():
        each.pop(key.owner, None)
    return {of.of_table(FORMER_NAMES): json.dumps(each, separators=(",", ":")) for of, each in said.items()}


def taken_over(key: LedgerKey, line: Line, properties: Mapping[str, str], former: str, last: int) -> dict[str, str]:
    """The table properties to set when the sink has got its name after a ``former`` one: they say of both names what
    the table holds, and what a rollback has removed. Empty if they say it already. ``last``: the table's last sequence
    number.
    """
    before, own = key.named(former).with_former(properties), key.with_former(properties)
    is_back = before.took_over(key.owner)
    if own.took_over(former) and not is_back:
        return {}
    names, ledger = renamed(key, former, last, properties), of_both_names(key, line, properties, former)
    if not ledger.source and not ledger.gone and key.of_table(SOURCE_OFFSETS) not in properties:
        return names
    tellers = (before,) if is_back else (own, before)
    noted = {**names, **_repeated(key, line, properties, ledger), **_told(key, tellers, ledger, properties)}
    return noted | _kept(key, line, {**properties, **noted})


def _told(
    key: LedgerKey, tellers: tuple[LedgerKey, ...], ledger: Ledger, properties: Mapping[str, str]
) -> dict[str, str]:
    """The properties of ``key`` that repeat what those of the ``tellers`` say of rollbacks that the
    ledger knows.
    """
    said = [{"snapshots": ids, **entries} for each in tellers for ids, entries in each.ledgers_at(properties)]
    noted = [each for each in (*tellers, key) if each.of_table(ROLLBACK_ANSWERED) in properties]
    note = replace((noted or [key])[0].rollback_note(properties), forgotten=ledger.forgotten)
    discarded = reduce(union, [_discarded_in(each, ledger, properties) for each in tellers])
    discarded_at = key.of_table(DISCARDED_OFFSETS)
    return {
        **({key.of_table(LEDGERS_AT): _texts(said)} if said else {}),
        # What this name says itself may be from before the other one has brought it back.
        **({discarded_at: encode_coverage(discarded)} if discarded or discarded_at in properties else {}),
        **({key.of_table(ROLLBACK_ANSWERED): str(note)} if noted or ledger.gone else {}),
    }


def _as_it_is(key: LedgerKey, line: Line, properties: Mapping[str, str], ledger: Ledger) -> dict[str, str]:
    """The table properties that repeat this ledger of the branch, and those that depend on it."""
    return {
        **_repeated(key, line, properties, ledger),
        **_kept(key, line, properties),
        **_trimmed(key, ledger, properties),
    }


def _repeated(key: LedgerKey, line: Line, properties: Mapping[str, str], ledger: Ledger) -> dict[str, str]:
    head, last = line.head, key.last_commit(properties)
    return {
        **{key.of_table(name): value for name, value in source_entries(ledger).items()},
        key.of_table(GONE_OFFSETS): encode_coverage(ledger.gone),
        key.of_table(LEDGER_DOUBT): str(ledger.doubt or ""),
        key.of_table(LEDGER_SNAPSHOT): str(head.place if head is not None else last or ""),
    }


def _trimmed(key: LedgerKey, ledger: Ledger, properties: Mapping[str, str]) -> dict[str, str]:
    """The note of the last ``calving rollback``, and the discarded offsets, without offsets that are no longer gone:
    should a rollback remove them once more, that one is not answered, and has snapshots. Empty if both are right
    already.
    """
    note = key.rollback_note(properties)
    forgotten, discarded = intersection(note.forgotten, ledger.gone), _discarded_in(key, ledger, properties)
    changes = {}
    if forgotten != note.forgotten:
        changes[key.of_table(ROLLBACK_ANSWERED)] = str(replace(note, forgotten=forgotten))
    if discarded != key.discarded(properties):
        changes[key.of_table(DISCARDED_OFFSETS)] = encode_coverage(discarded)
    return changes


def _discarded_in(key: LedgerKey, ledger: Ledger, properties: Mapping[str, str]) -> Coverage:
    """The discarded offsets that are gone by this ledger."""
    return intersection(key.discarded(properties), ledger.gone)


def _gone(key: LedgerKey, properties: Mapping[str, str]) -> object:
    return decode_coverage(properties.get(key.of_table(GONE_OFFSETS), "{}"))


def _kept(key: LedgerKey, line: Line, properties: Mapping[str, str]) -> dict[str, str]:
    """The table property with the ledgers at snapshots of others. It is needed if no snapshot of the sink is left below
    them, or a cherry-pick has added to the ledger: after a rollback to such a snapshot, only this property tells what
    the table holds. Empty if the property is right already.
    """
    ids = _with_the_same_rows(line)
    key = key.with_former(properties)
    own, known = key.own(line.snapshots), list(key.ledgers_at(properties))
    if not ids or (own is not None and own.place.id in ids) or any(ids[0] in snapshots for snapshots, _ in known):
        return {}
    ledger = key.read(line, properties)
    is_shown = own is not None and key.held_at(own) == {tp: ledger.held(tp) for tp in ledger.source}
    if ledger.doubt is not None or is_shown:
        return {}
    left = [([i for i in snapshots if i not in ids], entries) for snapshots, entries in known]
    ledgers = [(ids, source_entries(ledger)), *((snapshots, entries) for snapshots, entries in left if snapshots)]
    return {key.of_table(LEDGERS_AT): _texts({"snapshots": ids, **entries} for ids, entries in ledgers)}


def _texts(ledgers: Iterable[Mapping[str, object]]) -> str:
    return json.dumps([*islice(ledgers, _MOST_LEDGERS)], separators=(",", ":"))


def _with_the_same_rows(line: Line) -> list[int]:
    """The ids of the head and of those below it that have the same rows of the sink: down to the newest cherry-pick."""
    same = []
    for snapshot in islice(line.snapshots, _MOST_SNAPSHOTS):
        same.append(snapshot.place.id)
        if source_of(snapshot) is not None:
            break
    return same
