"""The checker that runs beside a campaign: a process of its own, which shares no code with the sink.

It reads the source topic itself, and every 0.2 s where the catalog's tables are; every few seconds it reads the tables
as they were at one moment: metadata, manifests and data files as such, without a library of tables. ``audit.py`` has
the rules.

Each line on standard input is a JSON array that tells it what somebody has done, and it answers ``done``:

    ["back"]                         all tables have gone back in time
    ["dropped", TABLE, METADATA]     the table was dropped; METADATA is where its metadata file is
    ["look away"]                    nothing is judged until a line that tells what was done; the next three do not
    ["rolled back", TABLE, METADATA, BEFORE, AFTER]
                                     somebody has moved the table's head from one snapshot to another one
    ["forgotten", TABLE]             what that has removed is to stay away
    ["wanted", TABLE]                nothing is to stay away any more
    ["released", [FILE, ...]]        an operator has discarded these files, which belong in no table any more
    ["appended", TABLE, KEY, SURE]   somebody else appends a row with this key; it must be there, or may
    ["complete", SENT]               answer yes or no: each of so many records is where it belongs, or was dropped;
                                     after "look away" nothing is judged for it
    ["recreating"]                   read the topic to its end, before it is deleted
    ["recreated", TOPIC_ID]          the topic was deleted and created again; everything in it was committed before
    ["end", SENT, SECONDS]           everything is sent, or soon is, and all parts of the sink are back

After ``end`` it watches the end, prints its report, one JSON object, and ends. It gives up when nothing has been
committed for so many seconds, and counts what is not there by then as lost.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from campaign import changes, records
from campaign.audit import Audit
from campaign.changes import Warehouse, Workload
from campaign.latency import Commit
from campaign.replays import Replay, Rows, Versions
from campaign.rows import ChangedTables, RowAudit
from campaign.tables import Tables
from harness.locations import locations

if TYPE_CHECKING:  # the process that checks imports nothing of calving
    from harness.run import Run

_LOOK_SECONDS = 3.0
_READ_SECONDS = 5.0
_END_SECONDS = 120.0
_AT_MOST = 4
"""As many times the seconds of ``end`` it watches a sink that goes on committing, and is not done."""
_OF_ROLLBACKS = ("rolled back", "forgotten", "wanted")
_AWS = {
    "s3.endpoint": "AWS_ENDPOINT_URL",
    "s3.access-key-id": "AWS_ACCESS_KEY_ID",
    "s3.secret-access-key": "AWS_SECRET_ACCESS_KEY",
    "s3.region": "AWS_DEFAULT_REGION",
}
LETTERS = "letters-{name}"
"""The sink's dead-letter topic."""


class Checker:
    """Beside a run, from its beginning on."""

    def __init__(
        self, run: Run, database: Path, s3: Mapping[str, str] | None, workload: Workload, warehouse: Warehouse
    ) -> None:
        """``database``: the catalog's. ``s3``: the properties of the store with the tables, if that is not the disk."""
        settings = {
            "servers": run.servers,
            "topic": run.topic,
            "partitions": run.partitions,
            "group": f"connect-{run.name}",
            "control": f"control-{run.name}",
            "database": str(database),
            "tables": list(run.tables),
            "letters": LETTERS.format(name=run.name),
            "workload": workload,
            "warehouse": warehouse,
        }
        self._patience = 0.0
        self._log = (run.folder / "checker.log").open("w")
        self._child = subprocess.Popen(
            [sys.executable, "-m", "campaign.checker", json.dumps(settings)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env={**os.environ, **({variable: s3[name] for name, variable in _AWS.items()} if s3 is not None else {})},
        )

    def watch_the_end(self, sent: int, seconds: float) -> None:
        """``sent`` records will be there, and in the tables; until then something is committed within ``seconds``. All
        parts of the sink are back.
        """
        self._patience = _AT_MOST * seconds + _END_SECONDS
        self.tell("end", sent, seconds)

    def is_complete(self, sent: int) -> bool:
        """Whether of the first ``sent`` records each is where it belongs, or was dropped with its table."""
        return self._asked("complete", sent) == "yes"

    def tell(self, *line: Any) -> None:
        """One of the lines above; when this returns, the checker knows."""
        assert self._asked(*line) == "done"

    def _asked(self, *line: Any) -> str:
        """:raises AssertionError: it has ended."""
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        self._child.stdin.write(f"{json.dumps(line)}\n")
        self._child.stdin.flush()
        answer: str = self._child.stdout.readline().strip()
        assert answer, f"the checker failed: {Path(self._log.name).read_text()}"
        return answer

    def report(self) -> dict[str, Any]:
        """The findings. :raises AssertionError: the checker itself failed."""
        out, _ = self._child.communicate(timeout=self._patience + _END_SECONDS)
        assert self._child.returncode == 0, f"the checker failed: {Path(self._log.name).read_text()[-2000:]}"
        found: dict[str, Any] = json.loads(out)
        return found | {"commits": [Commit(*each) for each in found["commits"]]}

    def stop(self) -> None:
        self._child.kill()
        self._child.wait()
        self._log.close()


class Source:
    """The topic, as far as it has been read."""

    def __init__(self, servers: str, topic: str, partitions: int, group: str, audit: Audit) -> None:
        self._audit = audit
        self._partitions = [TopicPartition(topic, p) for p in range(partitions)]
        self._config: dict[str, str | int | float | bool] = {"bootstrap.servers": servers, "log_level": 0}
        self._consumer: Consumer | None = None
        # Not an admin client: librdkafka would end the process if a fault takes the group's coordinator away meanwhile.
        asking = {"group.id": group, "enable.auto.commit": False, "isolation.level": "read_committed"}
        self._positions = Consumer(self._config | asking)
        self.troubles: Counter[str] = Counter()
        """Why a reading ended early, and how often."""

    def read(self, seconds: float) -> bool:
        """Read to what is now the end. False: the broker did not let it in this time."""
        if self._consumer is None:
            self._consumer = self._open()
        trouble = self._read(self._consumer, time.monotonic() + seconds)
        if trouble is None:
            return True
        # A consumer stops for ever at an error of a partition, and may hold on to a broker that was killed.
        self.troubles[trouble] += 1
        self._consumer.close()
        self._consumer = None
        return False

    def _open(self) -> Consumer:
        consumer = Consumer(
            self._config | {"group.id": "checker", "auto.offset.reset": "error", "enable.auto.commit": False}
        )
        consumer.assign([TopicPartition(tp.topic, tp.partition, self._reaches(tp)) for tp in self._partitions])
        return consumer

    def recreated(self) -> None:
        """The topic that is there now is another one."""
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None

    def _begin(self, tp: TopicPartition) -> int:
        return self._audit.begins(tp.partition)[-1]

    def _reaches(self, tp: TopicPartition) -> int:
        """The offset after the last one that is known of, of the topic as it is now."""
        return self._audit.reaches(tp.partition) - self._begin(tp)

    def _read(self, consumer: Consumer, deadline: float) -> str | None:
        """The obstacle, as text."""
        try:
            ends = [consumer.get_watermark_offsets(tp, timeout=2)[1] for tp in self._partitions]
        except KafkaException as error:
            return str(error)
        while any(self._reaches(tp) < end for tp, end in zip(self._partitions, ends, strict=True)):
            for message in consumer.consume(1000, 0.1):
                if (reason := message.error()) is not None:
                    return str(reason)
                partition, offset = message.partition(), message.offset()
                assert partition is not None and offset is not None, "it was consumed"
                offset += self._audit.begins(partition)[-1]
                self._audit.produced(partition, offset, _number(message), message.timestamp()[1])
            if time.monotonic() > deadline:
                return "nothing came"
        return None

    def was_read(self) -> bool:
        """Whether the sink's group has the end of every partition as its position."""
        own = [TopicPartition(tp.topic, tp.partition) for tp in self._partitions]
        try:
            positions = {tp.partition: tp.offset for tp in self._positions.committed(own, 10)}
        except KafkaException:
            return False
        return all(positions.get(tp.partition, -1) >= self._reaches(tp) for tp in self._partitions)


def _number(message: Message) -> int:
    """The record's, which is its key."""
    key = message.key()
    assert key is not None
    return int(key)


def bury(servers: str, topic: str, source: str, audit: Audit) -> None:
    """Read all dead letters there are; ``source`` is the topic of their records."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "checker", "enable.auto.commit": False})
    try:
        tps = [TopicPartition(topic, p) for p in consumer.list_topics(topic, 10).topics[topic].partitions]
        ends = {tp.partition: consumer.get_watermark_offsets(tp, timeout=10)[1] for tp in tps}
        consumer.assign([TopicPartition(topic, p, 0) for p, end in ends.items() if end])
        deadline = time.monotonic() + _END_SECONDS
        at: dict[int, int] = {}
        while any(at.get(p, 0) < end - 1 for p, end in ends.items()) and time.monotonic() < deadline:
            for message in consumer.consume(1000, 0.5):
                if message.error() is None:
                    headers = cast("dict[str, bytes]", dict(message.headers() or ()))
                    assert headers["__connect.errors.topic"].decode() == source
                    place = int(headers["__connect.errors.partition"]), int(headers["__connect.errors.offset"])
                    audit.buried(_number(message), *place)
            at |= {tp.partition: tp.offset for tp in consumer.position(tps) if tp.offset >= 0}
    finally:
        consumer.close()


def main(settings: dict[str, Any]) -> None:
    names = settings["tables"]
    audit = _audit(settings["workload"], settings["warehouse"], names, settings["partitions"])
    source = Source(settings["servers"], settings["topic"], settings["partitions"], settings["group"], audit)
    ledger = f"kafka.connect.offsets.{settings['control']}.{settings['group']}"
    tables = _tables(names, settings["topic"], ledger, audit)
    database = Path(settings["database"])
    looked, away = 0.0, False
    while True:
        if select.select([sys.stdin], [], [], 0.2)[0]:
            if not (line := sys.stdin.readline()):
                return  # the campaign has gone
            what, *rest = json.loads(line)
            if what == "end":
                print("done", flush=True)
                break
            if what == "complete" and away:
                audit.went_back()  # whatever is done meanwhile
                _look(source, tables.read, database)
            elif what == "complete":
                _look(source, tables.look, database)
            elif what not in _OF_ROLLBACKS:
                away = what == "look away"
            print(_answer(what, rest, source, tables, audit), flush=True)
        if time.monotonic() - looked > _LOOK_SECONDS and not away:
            _look(source, tables.look, database)
            looked = time.monotonic()
    sent, seconds = rest
    cycles = _cycles(source, tables, audit, database, sent, seconds)
    bury(settings["servers"], settings["letters"], settings["topic"], audit)
    tables.end(sent, cycles)
    print(json.dumps({"report": audit.report() | {"troubles": source.troubles}, "commits": tables.commits}))


def _audit(workload: Workload, warehouse: Warehouse, names: list[str], partitions: int) -> Audit:
    if workload == "append":
        return Audit(names, partitions, partial(records.place, tables=names), records.BAD)
    place = partial(changes.place, tables=names, workload=workload)
    change = partial(changes.change, tables=names, workload=workload, warehouse=warehouse)
    appended = [name for at, name in enumerate(names) if changes.kind(at, workload, warehouse) == "appended"]

    def replay(table: str) -> Replay:
        words = changes.kind(names.index(table), workload, warehouse)
        return Versions(is_ordered="ordered" in words) if "history" in words else Rows()

    return RowAudit(names, partitions, place, records.BAD, change=change, replay=replay, appended_to=appended)


def _tables(names: list[str], topic: str, ledger: str, audit: Audit) -> Tables:
    kind = partial(ChangedTables, audit=audit) if isinstance(audit, RowAudit) else partial(Tables, audit=audit)
    return kind(names, topic, ledger)


def _answer(what: str, rest: list[Any], source: Source, tables: Tables, audit: Audit) -> str:
    match what, *rest:
        case "back", *_:
            audit.went_back()
        case "dropped", table, location:
            tables.dropped(table, location)
        case "released", files:
            tables.released(files)
        case "appended", table, key, surely:
            assert isinstance(audit, RowAudit), "nobody else appends to tables that records append to"
            audit.appended(table, key, surely=surely)
        case name, *_ if name in _OF_ROLLBACKS:
            _rollback(what, rest, source, tables, audit)
        case "recreating", *_:
            while not source.read(_READ_SECONDS):
                pass
        case "recreated", topic_id:
            audit.recreated()
            source.recreated()
            tables.recreated(topic_id)
        case "complete", sent:
            return "yes" if tables.complete(sent) else "no"
    return "done"


def _rollback(what: str, rest: list[Any], source: Source, tables: Tables, audit: Audit) -> None:
    assert isinstance(tables, ChangedTables) and isinstance(audit, RowAudit), "no such campaign appends only"
    match what, *rest:
        case "rolled back", table, location, before, after:
            while not source.read(_READ_SECONDS):
                pass
            tables.rolled_back(table, location, before, after)
        case "forgotten", table:
            tables.forgotten(table)
        case "wanted", table:
            audit.want_again(table)


def _look(source: Source, look: Callable[[Mapping[str, str]], None], database: Path) -> None:
    if (where := locations(database)) and source.read(_READ_SECONDS):
        try:
            look(where)
        except OSError as error:
            print(f"not looked at: {error}", file=sys.stderr)


def _cycles(source: Source, tables: Tables, audit: Audit, database: Path, sent: int, seconds: float) -> int | None:
    """How many cycles committed something after everything had been read, until it was all there; None: never."""
    started = moved = time.monotonic()
    read, commits = None, len(tables.commits)
    while time.monotonic() < min(moved + seconds, started + _AT_MOST * seconds):
        if len(tables.commits) > commits:
            moved, commits = time.monotonic(), len(tables.commits)
        if read is None and sum(map(audit.reaches, range(audit.partitions))) >= sent and source.was_read():
            read = time.time()
        _look(source, tables.look, database)
        if read is not None and tables.complete(sent):
            return len({cycle for moment, cycle, *_ in tables.commits if moment > read})
        time.sleep(0.05)
    return None


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
