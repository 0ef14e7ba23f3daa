"""Whether what workers count of their records adds up."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from campaign.books import Counters, asked, counters, imbalance, miscounted, wrong


def metrics(**counts: int) -> str:
    """As a worker serves them: one of the causes for which records are filtered is a label."""
    lines = []
    for name, count in counts.items():
        full = f"calving_records_{name}"
        label = '{cause="tombstone"}' if name == "filtered" else ""
        lines += [f"# TYPE {full} counter", f"{full}_total{label} {count}"]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize(("filtered", "left"), [(10, 0), (9, 1), (11, -1)])
def test_every_record_that_was_read_is_somewhere(filtered: int, left: int) -> None:
    found = counters(metrics(read=100, written=85, dead_lettered=5, filtered=filtered))
    assert imbalance(found) == left and wrong(found) == (left != 0)


def test_a_record_that_is_copied_to_a_second_table_is_written_twice() -> None:
    assert imbalance(counters(metrics(read=100, copied=3, written=90, superseded=7, deleted=6))) == 0


def test_rows_that_are_in_no_file_are_not_balanced_by_copies() -> None:
    assert wrong(counters(metrics(read=100, copied=-3, written=97)))


BEFORE = {Path("a"): counters(metrics(read=100, written=90, filtered=10))}
SENT = Counter(kept=7, dead_lettered=2, filtered=1)


def after(**counts: int) -> dict[Path, Counters]:
    right = {"read": 110, "written": 95, "superseded": 3, "copied": 1, "dead_lettered": 2, "filtered": 11}
    return {Path("a"): counters(metrics(**{**right, **counts}))}


def test_counters_grow_by_what_was_sent() -> None:
    assert miscounted(BEFORE, after(), SENT) == []


@pytest.mark.parametrize(
    ("counts", "found"),
    [
        ({"read": 109, "filtered": 10}, ["read", "filtered"]),
        ({"written": 96, "dead_lettered": 1}, ["kept", "dead_lettered"]),
        ({"read": 111, "written": 96}, ["read", "kept"]),
    ],
)
def test_a_sink_whose_counters_add_up_and_are_wrong_is_found(counts: dict[str, int], found: list[str]) -> None:
    there = after(**counts)
    assert not wrong(there[Path("a")])
    assert miscounted(BEFORE, there, SENT) == found


def test_counters_of_a_worker_that_came_or_read_again_say_nothing() -> None:
    text = "# TYPE calving_restarts counter\ncalving_restarts_total 1\n"
    refused = '# TYPE calving_publications counter\ncalving_publications_total{outcome="fenced"} 1\n'
    assert miscounted(BEFORE, {**after(), Path("b"): {}}, SENT) is None
    for more in (text, refused):
        again = {Path("a"): {**after()[Path("a")], **counters(more)}}
        assert miscounted(BEFORE, again, SENT) is None


@pytest.fixture
def page() -> Iterator[str]:
    """The status page of a worker that does not count what it filters."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = metrics(read=100, written=90).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Page)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()


def test_a_worker_that_does_not_count_what_it_filters_does_not_add_up(page: str, tmp_path: Path) -> None:
    telling, silent = tmp_path / "a.log", tmp_path / "b.log"
    telling.write_text(f"the status page: {page}\n")
    silent.write_text("no page yet\n")
    (found,) = asked([telling, silent]).values()
    assert wrong(found)
