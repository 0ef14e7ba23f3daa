"""Rolls tables back, and answers for the records that leave them: they are read again, forgotten, or restored (R7)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from uuid import uuid4

from pyiceberg.table.snapshots import Snapshot

from calving.cli import rolled_back_queries
from calving.cli.recover import recover
from calving.errors import ConfigError, NothingToAnswerError
from calving.iceberg.catalog import table_id
from calving.iceberg.history import line_of
from calving.iceberg.marks import mark_of
from calving.iceberg.rollback import RollbackPlan, TableRollback
from calving.model.offsets import Coverage, TopicPartition, present, size, text_of, within
from calving.model.tables import RollbackAnswer
from calving.model.text import counted, natural
from calving.protocol.answers import (
    AsItIs,
    BeforeTime,
    RollbackTarget,
    ToSnapshot,
    WithoutRecord,
    mind_ends,
)
from calving.runtime import components
from calving.runtime.group_members import mind_members, running
from calving.runtime.log_view import marks_in
from calving.runtime.maintenance.step import committing
from calving.runtime.preflight import file_rules, former_names, held, ledger_key, own_tables
from calving.runtime.recovered_tables import mind_other_names, strangers
from calving.runtime.routed import routed_tables
from calving.settings.load import Sink
from calving.source.interface import Source
from calving.source.start import moment_ms, record_at

_ROWS = "total-records"


@dataclass(frozen=True)
class SourceTopics:
    """What the topics of a sink hold now. They are asked only if an answer needs it."""

    sink: Sink

    @cached_property
    def source(self) -> Source:
        return components.source(self.sink)

    @cached_property
    def begins(self) -> dict[TopicPartition, int]:
        """The lowest offset of each partition."""
        return dict(self.source.bounds(self.source.partitions()).begins)

    @cached_property
    def identities(self) -> dict[str, str]:
        """The id of each topic."""
        return dict(self.source.identities({tp.topic for tp in self.begins}))


def rollback(
    sink: Sink,
    tables: Collection[str],
    target: RollbackTarget,
    answer: RollbackAnswer,
    *,
    branch: str | None = None,
    again: bool = False,
    dry_run: bool = False,
) -> Iterator[str]:
    """Roll each table back to the target, and give the answer, in one commit for each table. If the command is
    interrupted, run it again: of several tables, those that have their answer already are left as they are. The sink
    may run, unless records are read again.

    :raises CalvingError: it cannot be done; nothing has changed for the table that the text names.
    """
    _mind_options(tables, target, answer, branch)
    topics = SourceTopics(sink)
    target = _with_topic_id(target, topics)
    rollbacks = list(_rollbacks(sink, [*dict.fromkeys(tables)], target, answer, branch, again=again))
    if answer is RollbackAnswer.REREAD and not dry_run:
        mind_members(topics.source, (sink.group,))
    plans = _plans(rollbacks)
    planned = {each: plan for each, plan in plans if isinstance(plan, RollbackPlan)}
    if answer is RollbackAnswer.REREAD:
        _mind_reread(sink, {each.name: plan for each, plan in planned.items()}, topics)
    else:
        _mind_replacements(sink, {each.name: plan for each, plan in planned.items()})
    for each, plan in plans:
        yield from _answered(each, plan, dry_run=dry_run)
    if dry_run:
        if answer is RollbackAnswer.REREAD:
            yield from running(topics.source, sink.group)
        return
    if answer is RollbackAnswer.REREAD:
        yield from recover(sink, [each.name for each in planned], forgotten=False, dry_run=False)
    else:
        yield "done"


def _answered(each: TableRollback, plan: RollbackPlan | NothingToAnswerError, *, dry_run: bool) -> Iterator[str]:
    """What has been done with a table, or would be: others may have committed since it was planned."""
    if isinstance(plan, NothingToAnswerError):
        yield str(plan)
    elif dry_run:
        yield from _lines(each.name, plan, would=True)
        yield from rolled_back_queries.lines(each.name, each.branch, plan, would=True)
    else:
        with committing(each.name):
            done = each.commit()
        yield from _lines(each.name, done, would=False)
        yield from rolled_back_queries.lines(each.name, each.branch, done, would=False)


def _with_topic_id(target: RollbackTarget, topics: SourceTopics) -> RollbackTarget:
    """:raises ConfigError: the target names a record of a partition that the sink does not read."""
    if not isinstance(target, WithoutRecord):
        return target
    if target.tp not in topics.begins:
        raise ConfigError(f"--at {target.tp.topic}:{target.tp.partition}: the sink reads no such partition")
    return replace(target, tp=within(target.tp, topics.identities.get(target.tp.topic, "")))


def _mind_options(tables: Collection[str], target: RollbackTarget, answer: RollbackAnswer, branch: str | None) -> None:
    """:raises ConfigError: the options do not go together."""
    if isinstance(target, ToSnapshot) and len(tables) > 1:
        raise ConfigError("--to names a snapshot of one table: name one --table, or use --before or --at")
    if answer is RollbackAnswer.REREAD and branch is not None:
        raise ConfigError("--branch: only the branch to which the sink commits can be read again: leave --branch out")


def _rollbacks(
    sink: Sink,
    tables: Collection[str],
    target: RollbackTarget,
    answer: RollbackAnswer,
    branch: str | None,
    *,
    again: bool,
) -> Iterator[TableRollback]:
    catalog = components.catalog(sink)
    for name in tables:
        key = ledger_key(sink, "", name)
        yield TableRollback(
            catalog,
            table_id(name),
            key if branch is None else replace(key, branch=branch),
            target,
            answer,
            changes_rows=sink.mutations(name) is not None,
            again=again,
            rules=file_rules(sink),
        )


def _plans(rollbacks: Sequence[TableRollback]) -> list[tuple[TableRollback, RollbackPlan | NothingToAnswerError]]:
    """What the command does with each table, or why it does nothing.

    :raises NothingToAnswerError: none of them lacks anything.
    """
    plans: list[tuple[TableRollback, RollbackPlan | NothingToAnswerError]] = []
    for each in rollbacks:
        try:
            plans.append((each, each.plan()))
        except NothingToAnswerError as error:
            plans.append((each, error))
    errors = [plan for _, plan in plans if isinstance(plan, NothingToAnswerError)]
    if len(errors) == len(plans):
        raise errors[0]
    return plans


def _mind_reread(sink: Sink, plans: Mapping[str, RollbackPlan], topics: SourceTopics) -> None:
    """``plans``: by table. :raises ConfigError: the records must not, or cannot, be read again (R11)."""
    for name, plan in plans.items():
        _mind_topics(name, plan, topics)
    _mind_names(sink, plans.values(), topics)


def _mind_replacements(sink: Sink, plans: Mapping[str, RollbackPlan]) -> None:
    """``plans``: by table. :raises ConfigError: a table was replaced, and nobody has noted yet what it has lost: the
    answer would not be for that.
    """
    begun = {name: plan.table for name, plan in plans.items() if plan.unanswered and not _has_ledger(sink, plan)}
    if not begun:  # so the control log is not asked for most rollbacks
        return
    with closing(components.backend(sink).open(str(uuid4()))) as session:
        log_id, marks = marks_in(session)
    now = {table_id(name): mark_of(table, ledger_key(sink, log_id, name)) for name, table in begun.items()}
    for table in sorted(marks.older(now)):
        raise ConfigError(
            f"table {'.'.join(table)} was replaced (CREATE OR REPLACE TABLE) while the sink committed, and nobody has"
            " noted yet what the catalog has discarded: run the sink until its log says so, and then give this answer;"
            " or `reread`"
        )


def _has_ledger(sink: Sink, plan: RollbackPlan) -> bool:
    """Whether a snapshot of the branch has a ledger of the sink. After a replacement none has."""
    key = ledger_key(sink, "", ".".join(plan.table.name())).with_former(plan.table.metadata.properties)
    return key.own(line_of(plan.table, key.branch).snapshots) is not None


def _mind_topics(name: str, plan: RollbackPlan, topics: SourceTopics) -> None:
    """:raises ConfigError: records that are to be read again are no longer in their topics."""
    gone = present(plan.unanswered, topics.identities)
    mind_ends(name, gone, topics.begins)
    if size(gone) < size(plan.unanswered):
        raise ConfigError(
            f"table {name}: a topic was deleted and recreated, so not all of {text_of(plan.unanswered)} can be read"
            " again; the answers that are left are `restore` and `forget`"
        )


def _mind_names(sink: Sink, plans: Iterable[RollbackPlan], topics: SourceTopics) -> None:
    """:raises ConfigError: records that would be read again are in a table under another name of the sink (R11)."""
    lowest: dict[TopicPartition, int] = {}
    for plan in plans:
        for tp, spans in present(plan.unanswered, topics.identities).items():
            lowest[tp] = min([lowest.get(tp, spans[0].start), spans[0].start])
    catalog = components.catalog(sink)
    names = {*own_tables(sink), *routed_tables(catalog, sink, {tp.topic for tp in topics.begins}).all()}
    records = dict(held(catalog, sink, "", sorted(names)))
    others = former_names(records, topics.begins.keys(), topics.identities)
    again_there = ((name, owner) for name, owner, tp, end in others if lowest.get(tp, end) < end)
    mind_other_names(sink, strangers(catalog, sink, again_there))


def _lines(name: str, plan: RollbackPlan, *, would: bool) -> Iterator[str]:
    """The plan for a person, or what was done."""
    if plan.leaving and plan.target is not None and plan.head is not None:
        verb = "would go back" if would else "went back"
        left = f"{counted(len(plan.leaving), 'snapshot')} {'would leave' if would else 'left'}"
        yield f"table {name} {verb} from {_named(plan.head)} to {_named(plan.target)}: {left}{_rows(plan)}"
    else:
        yield f"table {name} stays at {_named(plan.head)}"
    yield f"table {name}: {_answer(plan, would=would)}"


def _answer(plan: RollbackPlan, *, would: bool) -> str:
    gone = plan.unanswered
    offsets = f"{counted(size(gone), 'offset')} ({text_of(gone)})" if gone else "no offset that is known"
    be = _be(gone, would=would)
    if plan.answer is RollbackAnswer.FORGET and not gone and plan.ledger.doubt is None:
        return f"what it lacks was forgotten before ({text_of(plan.ledger.gone)})"
    if plan.answer is RollbackAnswer.FORGET:
        return f"{offsets} {be} forgotten: their records stay away, in this table only{_left(plan)}"
    if plan.answer is RollbackAnswer.REREAD:
        return f"{offsets} {be} read again, for this table only, with the settings of now"
    return _restored(plan, would=would)


def _restored(plan: RollbackPlan, *, would: bool) -> str:
    restoration, back = plan.restoration, plan.unanswered
    said = f"{counted(size(back), 'offset')} ({text_of(back)}) {_be(back, would=would)} restored:"
    if restoration is None or restoration.forward is not None:
        place = restoration.forward.place.id if restoration is not None and restoration.forward is not None else None
        said += f" the branch {'would go' if would else 'went'} forward to snapshot {place}"
    else:
        files = counted(len(restoration.files), "file")
        rows, commits = counted(restoration.rows, "row"), counted(len(restoration.commits.snapshots), "snapshot")
        said += f" {files} with {rows}, of {commits}, {_be(back, would=would)} added"
    return said + _left(plan)


def _left(plan: RollbackPlan) -> str:
    if not plan.left:
        return ""
    offsets = f"{counted(size(plan.left), 'offset')} ({text_of(plan.left)})"
    again = " with --again" if plan.answer is RollbackAnswer.FORGET else ""
    return (
        f"; {offsets} are not answered by this, because the table was replaced and their snapshots are discarded: give"
        f" the answer `reread` or `forget`{again} for them afterwards"
    )


def _be(offsets: Coverage, *, would: bool) -> str:
    return "would be" if would else "are" if size(offsets) > 1 else "is"


def _named(snapshot: Snapshot | None) -> str:
    if snapshot is None:
        return "its beginning, without a snapshot"
    try:
        at = datetime.fromtimestamp(snapshot.timestamp_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):  # another engine may count microseconds
        return f"snapshot {snapshot.snapshot_id}, whose time {snapshot.timestamp_ms} ms is none"
    return f"snapshot {snapshot.snapshot_id} of {at:%Y-%m-%d %H:%M:%S} UTC"


def _rows(plan: RollbackPlan) -> str:
    """The rows that leave, as the snapshots count them."""
    counts = [
        snapshot.summary.additional_properties.get(_ROWS) if snapshot is not None and snapshot.summary else None
        for snapshot in (plan.head, plan.target)
    ]
    before, after = (natural(each) for each in counts)
    return "" if before is None or after is None else f", and the table has {after:,} rows instead of {before:,}"


def target_of(*, to: int | None, before: str | None, at: str | None, as_is: bool) -> RollbackTarget:
    """The target that the options of the command name.

    :raises ConfigError: they name none or several, or one that cannot be read.
    """
    if sum((to is not None, before is not None, at is not None, as_is)) != 1:
        raise ConfigError("say where the table goes: one of --to, --before, --at and --as-is")
    if to is not None:
        return ToSnapshot(to)
    try:
        if before is not None:
            return BeforeTime(moment_ms(before))
        if at is not None:
            return WithoutRecord(*record_at(at))
    except ValueError as error:
        raise ConfigError(f"{'--at' if before is None else '--before'}: {error}") from error
    return AsItIs()
