"""The plan of a move of positions, for a person."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from calving.model.offsets import Coverage, intersection, size, text_of
from calving.model.text import counted
from calving.protocol.moves import PositionMove, TablePart


def plan_lines(move: PositionMove, parts: Mapping[str, TablePart], unheld: Mapping[str, Coverage]) -> Iterator[str]:
    """One line for each thing that the move means. ``parts``: by table. ``unheld``: by table, offsets that count as
    held although no record of them can be there.
    """
    of_tables = {name: intersection(part.held, move.skipped) for name, part in sorted(parts.items())}
    for tp, at in sorted(move.targets.items()):
        stored = move.stored[tp]
        if at < stored:
            yield f"{tp}: back from {stored} to {at}: {counted(stored - at, 'offset')} to read again"
        elif at > stored:
            where = "" if any(tp in each for each in of_tables.values()) else ", so no table gets their records"
            skipped = f"{counted(at - stored, 'offset')} ({stored} to {at}) skipped{where}"
            yield f"{tp}: forward from {stored} to {at}: {skipped}"
    for tp, at in sorted(move.restarted.items()):
        yield f"{tp}: read from {at} on, because later records are published and not in all tables yet"
    for name, part in sorted(parts.items()) if move.back else ():
        yield f"table {name}: {_of_table(move, part)}"
        if never := intersection(part.doubles(move), unheld.get(name, {})):
            yield f"table {name}: {_never_there(never, again=move.again)}"
    for name, held in of_tables.items():
        if held:
            yield f"table {name}: it holds {counted(size(held), 'offset')} of the skipped ones ({text_of(held)})"


def _of_table(move: PositionMove, part: TablePart) -> str:
    held = part.doubles(move)
    if not held:
        return "it holds none of them, so it gets those records that are routed to it"
    what = f"it holds {counted(size(held), 'offset')} of them ({text_of(held)})"
    return f"{what}: their records are read again, and stand twice in it" if move.again else f"{what} and skips these"


def _never_there(offsets: Coverage, *, again: bool) -> str:
    what = f"it has no record of {counted(size(offsets), 'offset')} of these ({text_of(offsets)})"
    why = f"{what}, because they were settled before its first commit"
    return f"{why}: they stand once in it" if again else f"{why}: to have them, run `calving backfill FILE` as well"
