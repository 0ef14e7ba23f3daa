"""The checks of a case: the oracle agrees, and neither neighbours, order, blocks nor the way change a result."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from calving.converters.native import absence
from calving.iceberg.rules import TableRules
from calving.model.offsets import TopicPartition
from calving.model.record_path import Tolerance
from tests.fuzz.cases import LETTERS, NOTHING, Case
from tests.fuzz.fates import ANY, Dead, Expected, Rows, expect
from tests.fuzz.files import faults
from tests.fuzz.forms import RowText
from tests.fuzz.sink import START, TOPIC, Found, Sink

_ALONE = 5
_SHARE = "share"
_INTOLERANT = "tolerance none"
_SLOW = ("exactly", "without Rust")
"""Ways that take as long as many others."""
_FEW = 0.2
"""So large a share of a column's values does not decide its type that in many cases it matters how they are counted."""


@dataclass(frozen=True)
class Disagreement:
    """``check`` has failed; ``record`` is the place in the case of the record that shows it, if one does."""

    check: str
    record: int | None
    expected: str
    got: str

    @property
    def signature(self) -> str:
        """The same for disagreements that probably have one cause."""
        return re.sub(
            r"'[^']*'|\"[^\"]*\"|[0-9]+|db\.\w+", "_", f"{self.check}: {self.expected[:60]} / {self.got[:100]}"
        )

    def plain(self) -> dict[str, Any]:
        return asdict(self)


def check(case: Case, sink: Sink, only: str | None = None) -> list[Disagreement]:
    """All checks of a case, or one; empty: it holds. Of the ways of a long case one is tried, which its seed decides."""
    expected = expect(case.values(), case.tables, case.rules, case.topics)
    case = replace(case, run=replace(case.run, converters=sink.use(case.converter, case.schemas, case.key_converter)))
    found = sink.take(case.run, case.targets, case.raws, case.envelopes)
    if found.error is not None:
        return [Disagreement("oracle", None, "a batch", found.error)]
    disagreements = [*_accounts(case, found), *_letters(case, found), *_against(case, expected, found)]
    if only in (None, "alone"):
        disagreements += _alone(case, sink, expected)
    if only in (None, "files"):
        disagreements += _files(sink, found)
    if case.long and only is None:
        ways = [*(way for way, _ in _variants(case, sink)), _INTOLERANT]
        (only,) = case.random("way").choices(ways, [1 if way in _SLOW else 5 for way in ways])
    disagreements += _ways(case, sink, found, only)
    if only in (None, _INTOLERANT):
        disagreements += _intolerant(case, sink, expected)
    return [*disagreements, *_shares(case, sink, only)]


def _files(sink: Sink, found: Found) -> Iterator[Disagreement]:
    try:
        sink.commit(found)
    except Exception as error:
        yield Disagreement("files", None, "a commit", f"{type(error).__name__}: {error}")
        return
    for name, files in found.files.items():
        for fault in faults(sink.table(name), files):
            yield Disagreement("files", None, "the spec", fault)


def _accounts(case: Case, found: Found) -> Iterator[Disagreement]:
    """Every record is read once and ends in one place; where there are several tables, in one at least."""
    counts = [sum(rows.values()) for rows in found.rows.values()] or [0]
    rest = len(found.dead) + sum(found.filtered.values())
    if found.read != len(case.raws) or not max(counts) + rest <= found.read <= sum(counts) + rest:
        yield Disagreement(
            "accounts", None, f"{len(case.raws)} records", f"read {found.read}, rows {counts} and {rest}"
        )


def _letters(case: Case, found: Found) -> Iterator[Disagreement]:
    for place in found.changed:
        yield Disagreement(
            "dead letters", case.places[place], "the record as it was, with a reason", found.reasons[place]
        )


def _against(case: Case, expected: Expected, found: Found) -> Iterator[Disagreement]:
    yield from _compare_dead(case, "oracle", expected.dead(), found)
    if expected.filtered() != found.filtered:
        yield Disagreement("oracle", None, f"filtered {dict(expected.filtered())}", f"filtered {dict(found.filtered)}")
    for table in found.tables.keys() - expected.tables.keys():
        yield Disagreement("oracle", None, "no such table", table)
    for table, there in expected.tables.items():
        if table not in found.tables:
            yield Disagreement("oracle", None, f"table {table}", "no table")
            continue
        want, got = there.signature(case.rules.fold), found.tables[table].signature(case.rules.fold)
        if want != got:
            yield Disagreement("oracle: table", None, *_differing(want, got))
        places = {
            expected.row(i, table): i
            for i, fate in enumerate(expected.fates)
            if isinstance(fate, Rows) and table in fate.rows
        }
        yield from _compare_rows(case, "oracle", expected.rows(table), found.rows[table], places)


def _compare_dead(case: Case, check: str, want: dict[int, str], found: Found) -> Iterator[Disagreement]:
    for i in sorted(set(want) | set(found.dead)):
        if want.get(i) != found.dead.get(i) and not (want.get(i) == ANY and i in found.dead):
            expected = f"dead letter of {want[i]}" if i in want else "no dead letter"
            got = f"dead letter of {found.dead[i]}: {found.reasons.get(i)}" if i in found.dead else "no dead letter"
            yield Disagreement(check, case.places[i], expected, got)
            return


def _compare_rows(
    case: Case, check: str, want: Counter[RowText], got: Counter[RowText], places: dict[RowText, int]
) -> Iterator[Disagreement]:
    missing, extra = want - got, got - want
    if not missing and not extra:
        return
    lost = next(iter(missing), None)
    if lost is None:
        yield Disagreement(check, None, "no such row", "; ".join(next(iter(extra))))
        return
    nearest = max(extra, key=lambda row: len(set(row) & set(lost)), default=None)
    place = case.places[places[lost]] if lost in places else None
    if nearest is None:
        yield Disagreement(check, place, "; ".join(lost), "no such row")
        return
    yield Disagreement(
        check,
        place,
        "; ".join(column for column in lost if column not in nearest),
        "; ".join(column for column in nearest if column not in lost),
    )


def _differing(want: dict[str, Any], got: dict[str, Any]) -> tuple[str, str]:
    names = [n for n in {**want, **got} if want.get(n) != got.get(n)]
    return str({n: want.get(n) for n in names}), str({n: got.get(n) for n in names})


def _variants(case: Case, sink: Sink) -> Iterator[tuple[str, Callable[[], Found]]]:
    """The same records in other ways, their places as in the case."""
    random = case.random("variants")
    run, count = case.run, len(case.raws)

    def taken(**changes: Any) -> Callable[[], Found]:
        return lambda: sink.take(replace(run, **changes), case.targets, case.raws, case.envelopes)

    order = list(range(count))
    random.shuffle(order)
    moved = [case.raws[i] for i in order], [case.envelopes[i] for i in order] if case.envelopes else ()
    if not case.is_placed:
        yield "shuffled", lambda: _moved(sink.take(run, case.targets, *moved), order)
    size = random.choice((1, 2, 3, 7, 50)) if count < 200 else random.randint(20, 100)
    yield "other blocks", taken(block_records=size)
    topics = (TOPIC,) if run.transforms else (TOPIC, "t")
    if not case.is_placed:
        yield "other partitions", taken(partitions=tuple(TopicPartition(random.choice(topics), n) for n in (0, 1, 7)))
    yield "exactly", taken(exactly=True)
    if absence() is None:
        yield "without Rust", taken(native=False)
    if LETTERS in case.drawn:
        yield LETTERS, taken(tolerance=Tolerance("table", "db.letters", at_most=10**9))
    if any(target.spec.fields for target in case.targets) or run.rules.defaults.partition_by:
        yield "landed", taken(rules=_landing(run.rules))
    if not case.topics:  # otherwise values of topics without a table are not looked at
        yield "a transform that does nothing", taken(transforms=(*run.transforms, NOTHING))


def _landing(rules: TableRules) -> TableRules:
    """The rules of tables whose files are landed: which records are bad does not depend on that."""
    tables = {name: replace(own, landing="unpartitioned") for name, own in rules.tables.items()}
    return replace(rules, tables=tables, defaults=replace(rules.defaults, landing="unpartitioned"))


def _ways(case: Case, sink: Sink, base: Found, only: str | None, prefix: str = "") -> Iterator[Disagreement]:
    for way, variant in _variants(case, sink):
        name = prefix + way
        if only is None or only.removesuffix(": table") == name:
            yield from _same(case, name, base, variant())


def _shares(case: Case, sink: Sink, only: str | None) -> Iterator[Disagreement]:
    """Where a few values do not decide the type of a new column, they are the same few in all other ways."""
    grows = case.run.evolution.create or case.run.evolution.evolve
    if not grows or not (only or _SHARE).startswith(_SHARE):
        return
    case = replace(case, run=replace(case.run, rules=replace(case.run.rules, share=_FEW)))
    base = sink.take(case.run, case.targets, case.raws, case.envelopes)
    if base.error is not None:
        yield Disagreement(_SHARE, None, "a batch", base.error)
        return
    yield from _ways(case, sink, base, only, f"{_SHARE}, ")


def _moved(found: Found, order: Sequence[int]) -> Found:
    found.dead = {order[i]: stage for i, stage in found.dead.items()}
    found.reasons = {order[i]: reason for i, reason in found.reasons.items()}
    return found


def _same(case: Case, check: str, base: Found, other: Found) -> Iterator[Disagreement]:
    if other.error is not None:
        yield Disagreement(check, None, "a batch", other.error)
        return
    yield from _letters(case, other)
    yield from _compare_dead(case, check, base.dead, other)
    if base.filtered != other.filtered:
        yield Disagreement(check, None, f"filtered {dict(base.filtered)}", f"filtered {dict(other.filtered)}")
    for table in base.tables:
        if table not in other.tables:
            yield Disagreement(check, None, f"table {table}", "no table")
            continue
        want, got = (t.tables[table].signature(case.rules.fold) for t in (base, other))
        if want != got:
            yield Disagreement(f"{check}: table", None, *_differing(want, got))
        yield from _compare_rows(case, check, base.rows[table], other.rows[table], {})


def _intolerant(case: Case, sink: Sink, expected: Expected) -> Iterator[Disagreement]:
    """Without tolerance the first bad record stops the batch, and is named."""
    if case.topics:
        return
    other = sink.take(replace(case.run, tolerance=Tolerance("error")), case.targets, case.raws, case.envelopes)
    if not expected.first_bad:
        if other.error is not None:
            yield Disagreement(_INTOLERANT, None, "a batch", other.error)
        return
    places = [f"topic '{TOPIC}', partition 0, offset {START + first}: " for first in sorted(expected.first_bad)]
    record = case.places[min(expected.first_bad)]
    if other.error_kind != "bad record" or not any(place in str(other.error) for place in places):
        yield Disagreement(_INTOLERANT, record, f"an error that names {' or '.join(places)}", str(other.error))


def _alone(case: Case, sink: Sink, expected: Expected) -> Iterator[Disagreement]:
    """A record alone, into the tables that the batch has left, becomes what it is among others."""
    if case.is_placed:
        return
    for i in case.random("alone").sample(range(len(case.raws)), min(_ALONE, len(case.raws))):
        alone = sink.take(case.run, None, [case.raws[i]], case.envelopes[i : i + 1])
        if alone.error is not None:
            yield Disagreement("alone", case.places[i], "a batch", alone.error)
            continue
        fate, one = expected.fates[i], case.only([case.places[i]])
        want = {0: fate.stage} if isinstance(fate, Dead) else {}
        yield from _compare_dead(one, "alone", want, alone)
        if isinstance(fate, Rows):
            for table in fate.rows:
                text = expected.row(i, table)
                yield from _compare_rows(one, "alone", Counter([text]), alone.rows[table], {text: 0})
