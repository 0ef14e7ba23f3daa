"""What is checked of a case: the oracle, and that neither neighbours, nor order, nor blocks, nor the way change anything."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from calving.data.spec import Evolution, Tolerance, TransformSpec
from tests.fuzz import oracle
from tests.fuzz.cases import Case
from tests.fuzz.oracle import Expected, Rows
from tests.fuzz.sink import START, TOPIC, Found, Sink
from tests.fuzz.values import RowText, row_text

NOTHING = TransformSpec("nothing", "org.apache.kafka.connect.transforms.SetSchemaMetadata$Value", {"schema.name": "x"})
_ALONE = 5


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


def check(case: Case, sink: Sink) -> list[Disagreement]:
    """All checks of a case; empty: it holds."""
    tables = {t.name: _table(t) for t in case.targets}
    expected = oracle.expect(
        case.raws,
        tables,
        evolve=case.run.evolution.evolve,
        case_insensitive=case.run.evolution.case_insensitive,
    )
    found = sink.take(case.run, case.targets, case.raws)
    if found.error is not None:
        return [Disagreement("oracle", None, "a batch", found.error)]
    disagreements = [*_accounts(case, found), *_against(case, expected, found)]
    for name, other in _variants(case, sink, found):
        disagreements += _same(case, name, found, other)
    disagreements += _intolerant(case, sink, expected, found)
    return disagreements


def _table(target: Any) -> Any:
    from tests.fuzz.tables import table_of

    return table_of(target.schema)


def _accounts(case: Case, found: Found) -> Iterator[Disagreement]:
    rows = max((sum(rows.values()) for rows in found.rows.values()), default=0)
    total = rows + len(found.dead) + sum(found.filtered.values())
    if not found.read == len(case.raws) == total:
        yield Disagreement("accounts", None, f"{len(case.raws)} records", f"read {found.read}, in all places {total}")


def _against(case: Case, expected: Expected, found: Found) -> Iterator[Disagreement]:
    yield from _compare_dead(case, "oracle", expected.dead(), found)
    if expected.filtered() != found.filtered:
        yield Disagreement("oracle", None, f"filtered {dict(expected.filtered())}", f"filtered {dict(found.filtered)}")
    for table, there in expected.tables.items():
        if table not in found.tables:
            yield Disagreement("oracle", None, f"table {table}", "no table")
            continue
        want, got = there.signature(), found.tables[table].signature()
        if want != got:
            yield Disagreement("oracle: table", None, *_differing(want, got))
        places = {row_text(f.rows[table]): i for i, f in enumerate(expected.fates) if isinstance(f, Rows)}
        yield from _compare_rows(case, "oracle", expected.rows(table), found.rows[table], places)


def _compare_dead(case: Case, check: str, want: dict[int, str], found: Found) -> Iterator[Disagreement]:
    for i in sorted(set(want) | set(found.dead)):
        if want.get(i) != found.dead.get(i):
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


def _variants(case: Case, sink: Sink, found: Found) -> Iterator[tuple[str, Found]]:
    """The same records in other ways, their places as in the case."""
    random = case.random("variants")
    run, count = case.run, len(case.raws)
    if count > 1:
        order = list(range(count))
        random.shuffle(order)
        yield "shuffled", _moved(sink.take(run, case.targets, [case.raws[i] for i in order]), order)
        blocks = replace(run, block_records=random.choice((1, 2, 3, 7, 50)) if count < 200 else random.randint(20, 100))
        yield "other blocks", sink.take(blocks, case.targets, case.raws)
    yield "exactly", sink.take(replace(run, exactly=True), case.targets, case.raws)
    yield "a transform that does nothing", sink.take(replace(run, transforms=(NOTHING,)), case.targets, case.raws)


def _moved(found: Found, order: Sequence[int]) -> Found:
    found.dead = {order[i]: stage for i, stage in found.dead.items()}
    found.reasons = {order[i]: reason for i, reason in found.reasons.items()}
    return found


def _same(case: Case, check: str, base: Found, other: Found) -> Iterator[Disagreement]:
    if other.error is not None:
        yield Disagreement(check, None, "a batch", other.error)
        return
    yield from _compare_dead(case, check, base.dead, other)
    if base.filtered != other.filtered:
        yield Disagreement(check, None, f"filtered {dict(base.filtered)}", f"filtered {dict(other.filtered)}")
    for table in base.tables:
        want, got = base.tables[table].signature(), other.tables[table].signature()
        if want != got:
            yield Disagreement(f"{check}: table", None, *_differing(want, got))
        yield from _compare_rows(case, check, base.rows[table], other.rows[table], {})


def _intolerant(case: Case, sink: Sink, expected: Expected, found: Found) -> Iterator[Disagreement]:
    """Without tolerance the first bad record stops the batch, and is named; each alone is what it is among others."""
    other = sink.take(replace(case.run, tolerance=Tolerance("error")), case.targets, case.raws)
    if expected.first_bad is None:
        if other.error is not None:
            yield Disagreement("tolerance none", None, "a batch", other.error)
    else:
        place = f"topic '{TOPIC}', partition 0, offset {START + expected.first_bad}: "
        record = case.places[expected.first_bad]
        if other.error is None or other.error_kind != "bad record" or place not in other.error:
            yield Disagreement("tolerance none", record, f"an error that names {place}", str(other.error))
    final = tuple(replace(t, schema=found.schemas.get(t.name, t.schema)) for t in case.targets)
    for i in case.random("alone").sample(range(len(case.raws)), min(_ALONE, len(case.raws))):
        alone = sink.take(replace(case.run, evolution=Evolution()), final, [case.raws[i]])
        yield from _alone(case, expected, i, alone)


def _alone(case: Case, expected: Expected, i: int, alone: Found) -> Iterator[Disagreement]:
    if alone.error is not None:
        yield Disagreement("alone", case.places[i], "a batch", alone.error)
        return
    fate = expected.fates[i]
    want = {0: fate.stage} if isinstance(fate, oracle.Dead) else {}
    if want != alone.dead:
        yield Disagreement("alone", case.places[i], f"dead letters {want}", f"{alone.dead} {alone.reasons}")
    elif isinstance(fate, Rows):
        for table, row in fate.rows.items():
            text = row_text(row)
            yield from _compare_rows(
                case.only([case.places[i]]), "alone", Counter([text]), alone.rows[table], {text: 0}
            )
