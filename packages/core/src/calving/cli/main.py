"""``calving``, the command. A user's mistake is one sentence, not a traceback."""

from __future__ import annotations

import contextlib
import inspect
import json
import logging
import os
import re
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from calving.importing import IMPORTING, reason

with IMPORTING:
    import typer
    from rich.console import Console
    from rich.markup import escape
    from rich.text import Text

    from calving.cli.logs import set_up_logs
    from calving.errors import CalvingError, ConfigError, RestartNeededError, UnavailableError
    from calving.model.tables import RollbackAnswer
    from calving.model.text import printable, printable_lines
    from calving.settings.load import load
    from calving.version import __version__

if TYPE_CHECKING:
    from calving.cli.status import SinkStatus
    from calving.runtime.app import App
    from calving.runtime.destination import Destination
    from calving.runtime.maintenance.maintainer import MaintenanceOrder
    from calving.runtime.maintenance.step import MaintenanceStep
    from calving.settings.load import Sink
    from calving.status.values import Status

app = typer.Typer(
    help="Kafka topics into Apache Iceberg tables, exactly once, on Spark.",
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)
File = Annotated[Path, typer.Argument(help="The sink's configuration: TOML, Kafka Connect JSON or .properties.")]
Worker = Annotated[
    Path | None,
    typer.Option(help="The properties of the Kafka Connect worker that the connector of FILE ran on."),
]


class MaintenanceTask(StrEnum):
    """A task of ``calving maintain``."""

    DELETES = "deletes"
    COMPACT = "compact"
    MANIFESTS = "manifests"
    EXPIRE = "expire"
    BOUNDS = "bounds"
    ORPHANS = "orphans"
    UPGRADE = "upgrade"


out = Console()
_NOT_WELL = 3


@app.callback(invoke_without_command=True)
def start(
    context: typer.Context,
    show_version: Annotated[bool, typer.Option("--version", help="Print the version, and nothing else.")] = False,
) -> None:
    if show_version:
        out.print(__version__, highlight=False)
        raise typer.Exit
    if context.invoked_subcommand is None:
        print(context.get_help())  # noqa: T201 - it is rendered already
        raise typer.Exit(2)


@app.command()
def init(
    file: Annotated[Path, typer.Argument(help="The file to write; it must not exist.")] = Path("sink.toml"),
    topic: Annotated[str | None, typer.Option(help="The topic to read.")] = None,
    bootstrap_servers: Annotated[
        str | None, typer.Option(help="Kafka's brokers, as host:port; by default localhost:9092.")
    ] = None,
    catalog: Annotated[
        str | None, typer.Option(help="The kind of catalog: embedded (default), rest, sql, glue or hive.")
    ] = None,
    store: Annotated[
        str | None, typer.Option(help="The object store of the data files: local (default), s3, gcs or azure.")
    ] = None,
    table: Annotated[str | None, typer.Option(help="The table; by default db.<topic>.")] = None,
    uri: Annotated[str | None, typer.Option(help="The catalog's address.")] = None,
    warehouse: Annotated[str | None, typer.Option(help="The location of the catalog's tables.")] = None,
) -> None:
    """Write a first configuration, with comments, from a few answers. At a terminal it asks for those that are
    missing.
    """
    from calving.cli.init import answers, asked, text_of

    text = text_of(
        answers(
            asked(topic, "--topic", "Topic"),
            table,
            asked(bootstrap_servers, "--bootstrap-servers", "Brokers, as host:port", "localhost:9092"),
            asked(catalog, "--catalog", "Catalog (embedded, rest, sql, glue, hive)", "embedded"),
            store=asked(store, "--store", "Store (local, s3, gcs, azure)", "local"),
            uri=uri,
            warehouse=warehouse,
        )
    )
    try:
        with file.open("x") as made:
            made.write(text)
    except OSError as error:
        raise ConfigError(f"{file}: {error.strerror or error}") from error
    out.print(f"{file} is written; next: calving preview {file}", markup=False, highlight=False)


@app.command()
def run(
    file: File,
    worker: Worker = None,
    until_caught_up: Annotated[
        bool, typer.Option("--until-caught-up", help="End once everything now in the topics is committed.")
    ] = False,
) -> None:
    """Run one worker of the sink until stopped."""
    with IMPORTING:
        from calving.runtime.app import App

    sink = App(load(file, worker), alone=True)

    def on_signal(number: int, frame: object) -> None:
        logging.getLogger("calving").info("stopping: the running batch is finished and published first")
        sink.stop()

    signal.signal(signal.SIGTERM, on_signal)
    signal.signal(signal.SIGINT, on_signal)
    with _shown(sink):
        sink.run(until_caught_up=until_caught_up)


def _shown(sink: App) -> AbstractContextManager[None]:
    """The live view, if the output is a terminal."""
    if not (out.is_terminal and sys.stderr.isatty()):
        return nullcontext()
    from calving.terminal.live import showing

    return showing(out, lambda: sink.status, lambda: sink.url)


@app.command()
def replay(file: File, worker: Worker = None) -> None:
    """Feed the dead letters back through the sink as it is configured now, exactly once. Some may fail again."""
    from calving.runtime.app import App

    sink = App(load(file, worker).replay(), alone=True)
    signal.signal(signal.SIGTERM, lambda *_: sink.stop())
    signal.signal(signal.SIGINT, lambda *_: sink.stop())
    with _shown(sink):
        sink.run(until_caught_up=True)
    out.print(f"{sink.progress.read} dead letters were read")


@app.command()
def backfill(
    file: File,
    start: Annotated[
        str, typer.Option("--from", help="Where to begin: earliest, latest, a time, or TOPIC:PARTITION=OFFSET,...")
    ],
    end: Annotated[
        str, typer.Option("--to", help="Where to end, likewise: the first record that is not read any more.")
    ],
    worker: Worker = None,
    branch: Annotated[
        str | None, typer.Option(help="The branch to write to. Default: the one to which the sink commits.")
    ] = None,
    table: Annotated[
        list[str] | None, typer.Option(help="A table that gets rows; may be repeated. Default: all tables of the sink.")
    ] = None,
    publish: Annotated[
        bool,
        typer.Option(
            "--publish",
            help="When all is read, bring the branch into the one to which the sink commits: fast-forward, or"
            " cherry-picks if that has moved on.",
        ),
    ] = False,
    id: Annotated[
        str | None, typer.Option(help="Tells this backfill from others. Default: made from range, branch and tables.")
    ] = None,
) -> None:
    """Read a range of the topics once into the sink's tables or a branch of them, exactly once, while the sink runs.

    Run again after an interruption it goes on; run again after its end it adds nothing.
    """
    from calving.cli.backfill import backfill as read_range
    from calving.cli.backfill import order_of
    from calving.runtime.app import App
    from calving.terminal.range_bar import RangeBar

    def run(sink: Sink, tell: Callable[[Status], None]) -> None:
        made = App(sink, alone=True)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: made.stop())
        made.run(until_caught_up=True, on_progress=lambda _: tell(made.status))

    order = order_of(start, end, branch, tuple(table or ()), id)
    bar = RangeBar(out if out.is_terminal and sys.stderr.isatty() else None)
    _print_lines(read_range(load(file, worker), order, run, bar, publish=publish))


@app.command()
def validate(file: File, worker: Worker = None) -> None:
    """Check the configuration, and everything that it points at. Creates the control topic if it is missing. A REST
    catalog that cannot stage a table creates an empty one, `calving_...`, which is dropped at once.
    """
    from calving.cli.inspect import validate as check

    for line in check(load(file, worker)):
        out.print(Text.assemble(("ok", "green"), " ", printable(line)))


@app.command()
def takeover(
    file: Annotated[
        Path, typer.Argument(help="The sink's configuration, or a folder with JSON of many connectors, *.json.")
    ],
    worker: Worker = None,
    out_folder: Annotated[
        Path | None,
        typer.Option("--out", help="For a folder of connectors: the folder to write a file for each sink to."),
    ] = None,
) -> None:
    """Say what happens when calving starts in the place of a Java sink; exit code 1: do not start. Writes nothing.

    Of a folder, convert each connector to a file of calving, and ask no service. Exit code 1: something is left to do
    first; 2: a connector cannot be taken over.
    """
    if file.is_dir():
        if out_folder is None:
            raise ConfigError(f"{file} is a folder of connectors: name a folder for the sinks with --out")
        _convert(file, out_folder, worker)
        return
    if out_folder is not None:
        raise ConfigError(f"--out is for a folder of connectors, and {file} is none")
    from calving.cli.takeover import takeover as look

    outcome = look(load(file, worker))
    _print_lines(outcome.happens)
    for line in outcome.refusals:
        out.print("[red]refused:[/red]", escape(printable(line)), highlight=False, soft_wrap=True)
    if outcome.refusals:
        raise typer.Exit(1)
    out.print("[green]safe:[/green] calving can start here: each record is in its tables once")


def _convert(folder: Path, target: Path, worker: Path | None) -> None:
    from calving.cli.connectors import as_table, convert, summary
    from calving.settings.files import read

    move = convert(folder, target, None if worker is None else read(worker))
    out.print(as_table(move), soft_wrap=False)
    _print_lines(summary(move))
    if move.exit_code:
        raise typer.Exit(move.exit_code)


@app.command()
def preview(
    file: File,
    worker: Worker = None,
    records: Annotated[int, typer.Option(min=1, help="The number of newest records to read.")] = 1_000,
) -> None:
    """Read some records, and show the tables, partitions and bad records that they would make. Writes nothing."""
    from calving.cli.preview import as_text
    from calving.cli.preview import preview as look

    sink = load(file, worker)
    rows = look(sink, records)
    _print_lines(as_text(rows, tolerates=sink.keys.errors_tolerance == "all"))


@app.command()
def status(
    file: File,
    worker: Worker = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")] = False,
    watch: Annotated[
        float | None, typer.Option(min=0.5, help="Show the status again at this interval in seconds, until Ctrl-C.")
    ] = None,
) -> None:
    """Show positions, lag and tables of the sink, whether it runs or not; exit code 3 if something is wrong."""
    from calving.cli import status as looking
    from calving.cli.status_text import as_text

    sink = load(file, worker)

    def show(found: SinkStatus) -> None:
        if as_json:
            print(json.dumps(looking.as_json(found, time.time())), flush=True)  # noqa: T201 - for programs
            return
        lines = out.height if watch is not None and out.is_terminal else None
        parts = list(as_text(found, time.time(), lines))
        if watch is not None:
            out.clear()
        out.print(*parts, sep="\n", highlight=False)

    show(found := looking.status(sink))
    with contextlib.suppress(KeyboardInterrupt):  # Ctrl-C stops watching
        while watch is not None:
            time.sleep(watch)
            try:
                found = looking.status(sink)
            except UnavailableError as error:  # the sink's stores may be unreachable for a while
                _tell_error(str(error))
            else:
                show(found)
    if found.health != "OK":
        raise typer.Exit(_NOT_WELL)


@app.command()
def offsets(
    file: File,
    worker: Worker = None,
    to: Annotated[
        list[str] | None,
        typer.Option(
            help="Where to read on: earliest, latest, a time (2026-11-28T09:30:00Z), or TOPIC:PARTITION=OFFSET; may be"
            " repeated. Stop all workers first."
        ),
    ] = None,
    by: Annotated[
        int | None, typer.Option(help="Go forward by so many offsets in each partition, or back (--by -1000).")
    ] = None,
    again: Annotated[
        bool,
        typer.Option(
            "--again",
            help="Tables also get the records that they hold, and have them twice. Without it they skip them.",
        ),
    ] = False,
    accept: Annotated[
        bool, typer.Option("--accept", help="Go on without the records that somebody has moved the positions past.")
    ] = False,
    dry_run: Annotated[bool, typer.Option(help="Show what would be done.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")] = False,
) -> None:
    """Show the stored source positions, or move them: back, to read records again, or forward, to skip some."""
    from calving.cli.inspect import positions, positions_json, positions_table

    destination = _destination(to or [], by, again=again)
    if destination is not None and accept:
        raise ConfigError("--accept takes positions as they are: move them with another call")
    if destination is None and dry_run:
        raise ConfigError("--dry-run: say where the positions go, with --to or --by")
    sink = load(file, worker)
    done: Iterable[str] = ()
    if accept:
        from calving.cli.accept import accept as go_on

        done = go_on(sink)
    if destination is not None:
        from calving.runtime.moving import move_positions

        done = move_positions(sink, destination, dry_run=dry_run)
    if as_json:
        lines = [*map(printable, done)]
        print(json.dumps({**positions_json(sink, positions(sink)), "done": lines}))  # noqa: T201 - for programs
        return
    _print_lines(done)
    out.print(positions_table(sink, positions(sink)))


def _destination(to: Sequence[str], by: int | None, *, again: bool) -> Destination | None:
    if not (to or by is not None or again):
        return None  # nothing of the tables is needed
    from calving.runtime.destination import Destination

    return Destination.of(to, by, again=again)


@app.command()
def recover(
    file: File,
    worker: Worker = None,
    table: Annotated[
        list[str] | None,
        typer.Option(help="A rolled back table: the records that it lacks are read again, also forgotten ones."),
    ] = None,
    former: Annotated[
        str | None,
        typer.Option("--from", help="The name that the sink had before it was renamed: <control topic>.<group>."),
    ] = None,
    dry_run: Annotated[bool, typer.Option(help="Show what would be done.")] = False,
) -> None:
    """Rebuild lost positions, or a lost control log, from the ledgers of the tables. No record is lost or doubled."""
    from calving.cli.recover import recover as go_back

    _print_lines(go_back(load(file, worker), table or [], former, dry_run=dry_run))


@app.command()
def rollback(
    file: File,
    table: Annotated[list[str], typer.Option(help="The table; may be repeated.")],
    then: Annotated[
        RollbackAnswer,
        typer.Option(
            help="What becomes of the records that leave. forget: they stay away. restore: their files come back."
            " reread: the sink reads them again (stop all workers first)."
        ),
    ],
    worker: Worker = None,
    to: Annotated[int | None, typer.Option(help="The snapshot to go back to.")] = None,
    before: Annotated[
        str | None, typer.Option(help="Go back to the newest snapshot from before this time (2026-11-28T09:30:00Z).")
    ] = None,
    at: Annotated[
        str | None,
        typer.Option(help="Go back to the newest snapshot without this record (TOPIC:PARTITION=OFFSET)."),
    ] = None,
    as_is: Annotated[bool, typer.Option("--as-is", help="Somebody has rolled the table back: only answer.")] = False,
    branch: Annotated[str | None, typer.Option(help="The branch. Default: the one to which the sink commits.")] = None,
    again: Annotated[
        bool,
        typer.Option(
            help="Go back once more to where the branch went before, past newer commits; have again what was forgotten;"
            " or forget all, also what a replacement of the table has discarded."
        ),
    ] = False,
    dry_run: Annotated[bool, typer.Option(help="Show what would be done.")] = False,
) -> None:
    """Roll tables back to an earlier snapshot, and say what becomes of the records that leave them."""
    from calving.cli.rollback import rollback as roll_back
    from calving.cli.rollback import target_of

    target = target_of(to=to, before=before, at=at, as_is=as_is)
    _print_lines(roll_back(load(file, worker), table, target, then, branch=branch, again=again, dry_run=dry_run))


@app.command()
def maintain(
    file: File,
    worker: Worker = None,
    table: Annotated[
        list[str] | None, typer.Option(help="A table; may be repeated. Without it, all tables that have such work.")
    ] = None,
    task: Annotated[
        list[MaintenanceTask] | None,
        typer.Option(
            help="A task; may be repeated. deletes: turn equality deletes into position deletes, which engines read"
            " faster. compact: join small files of a partition. manifests: merge small manifests. expire: remove old"
            " snapshots, and delete the files that only they named. orphans: delete old files that nothing names."
            " bounds: correct the bounds of files that a version before 0.2.0 may have written wrong. upgrade: give the"
            " tables Iceberg's format version 3. Without it, deletes, compact, manifests and expire."
        ),
    ] = None,
    other_sink: Annotated[
        list[Path] | None,
        typer.Option(help="The file of another sink that writes the tables: its buffered files stay. May be repeated."),
    ] = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Go on until stopped: do what is due, with a pause between two commits.")
    ] = False,
    anyway: Annotated[
        bool, typer.Option("--anyway", help="Also where another process maintains the table; it does no harm.")
    ] = False,
    dry_run: Annotated[bool, typer.Option(help="Show what would be done.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print a line of JSON for each step, for scripts.")] = False,
) -> None:
    """Maintain the sink's tables. The sink may run meanwhile. No row changes."""
    from calving.runtime.maintenance.maintainer import DEFAULT, MaintenanceOrder

    if watch and dry_run:
        raise ConfigError("--watch and --dry-run exclude each other")
    others = [load(other, worker) for other in other_sink or ()]
    order = MaintenanceOrder(table or [], task or DEFAULT, others, dry_run=dry_run, beside_others=anyway)
    for step in _maintained(load(file, worker), order, go_on=watch):
        if as_json:
            print(step.json(), flush=True)  # noqa: T201 - for programs
        else:
            _print_lines([step.line()])


def _maintained(sink: Sink, order: MaintenanceOrder, *, go_on: bool) -> Iterator[MaintenanceStep]:
    """``go_on``: until a signal, and not once."""
    from calving.cli.maintain import maintain as run_tasks
    from calving.cli.maintain import watch

    holder = f"{socket.gethostname()}:{os.getpid()}"
    if not go_on:
        return run_tasks(sink, order, int(time.time() * 1000), holder)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    return watch(sink, order, holder, stop)


@app.command()
def audit(
    file: File,
    worker: Worker = None,
    table: Annotated[
        list[str] | None, typer.Option(help="A table; may be repeated. Without it, all tables of the sink.")
    ] = None,
    at: Annotated[int | None, typer.Option(help="A snapshot: it and its ancestors are judged, and no other.")] = None,
    sample: Annotated[
        int, typer.Option(min=0, help="Read so many files of each table as a whole, others every time.")
    ] = 0,
    full: Annotated[
        bool,
        typer.Option(
            "--full", help="Read all files as a whole, and all records of the topics once more, and compare their rows."
        ),
    ] = False,
    offset: Annotated[
        str | None,
        typer.Option(
            help="Judge nothing: say which snapshot took this record, and its files (TOPIC:PARTITION=OFFSET)."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a line of JSON for each table, for scripts.")] = False,
) -> None:
    """Judge the sink's tables: ledgers, snapshots, manifests, files, deletes; exit code 1: something is wrong. Writes
    nothing, and shares no code with what writes. The sink may run meanwhile.
    """
    from calving.cli.audit import AuditOrder, shown

    sink, order = load(file, worker), AuditOrder(table or [], at, sample, full)
    is_well = True
    for answer in shown(sink, order, offset):
        is_well = is_well and answer.is_well
        if as_json:
            print(json.dumps(answer.found), flush=True)  # noqa: T201 - for programs
        else:
            _print_lines(answer.lines)
    if not is_well:
        raise typer.Exit(1)


@app.command()
def release(
    file: File,
    table: Annotated[list[str], typer.Option(help="A table that can never take its files; may be repeated.")],
    record: Annotated[Path, typer.Option(help="The file to write the discarded files' names to.")],
    worker: Worker = None,
) -> None:
    """Discard files that wait for a table that was dropped or recreated, or that are outside its location."""
    from calving.cli.release import release as discard

    _print_lines(discard(load(file, worker), table, record))


@app.command()
def demo(
    folder: Annotated[Path, typer.Option(help="The folder of Kafka's data and the warehouse.")] = Path(".calving-demo"),
    records: Annotated[int, typer.Option(help="Records to produce in this run.")] = 300_000,
) -> None:
    """Start a real Kafka, stream records through Spark into an Iceberg table, and prove the result."""
    from calving.demo import run_demo

    if not run_demo(folder, records, out):
        raise typer.Exit(1)


@app.command()
def version() -> None:
    """Print the version, and whether records are read and decoded by Rust."""
    from calving.converters import native
    from calving.source import opening

    out.print(__version__)
    out.print("native decoders: " + (native.absence() or "in use"))
    out.print("native reader: " + (opening.no_native_reader() or "in use"))


for _command in app.registered_commands:
    # In the list of commands typer keeps the line breaks of the code.
    _command.help = re.sub(r"(?<!\n)\n(?!\n)", " ", inspect.getdoc(_command.callback) or "")


def _print_lines(lines: Iterable[str]) -> None:
    """Print each line as soon as it comes, as plain text: names, records and texts of services may be in it."""
    for line in lines:
        out.print(printable(line), markup=False, highlight=False, soft_wrap=True)


def main() -> None:
    """The entry point. CALVING_TRACEBACK=1 shows tracebacks, CALVING_LOG_LEVEL sets the log level."""
    try:
        IMPORTING.keep()
        set_up_logs()
        code = app(standalone_mode=False)  # which returns the code of typer.Exit
        sys.exit(code if isinstance(code, int) else 0)
    except typer.Abort:
        sys.exit(1)
    except CalvingError as error:
        _fail(error, _code(error))
    except ModuleNotFoundError as error:
        _fail(error, 2, reason(error))
    except Exception as error:
        if hasattr(error, "format_message"):  # a usage error of the command line library
            _fail(error, 2, error.format_message())
        raise


def _code(error: CalvingError) -> int:
    if isinstance(error, RestartNeededError):
        from calving.threads import EXIT_CODE

        return EXIT_CODE
    return 2 if isinstance(error, ConfigError) else 1


def _fail(error: Exception, code: int, text: str | None = None) -> None:
    if os.environ.get("CALVING_TRACEBACK"):
        raise error
    _tell_error(text or str(error))
    sys.exit(code)


def _tell_error(text: str) -> None:
    """Print an error as plain text, because names and paths in it may look like markup, or hold control characters."""
    Console(stderr=True).print(Text.assemble(("error:", "red"), " ", printable_lines(text)), soft_wrap=True)
