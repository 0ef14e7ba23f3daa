"""Whether what workers count of their records adds up."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from campaign.books import books, imbalance


def metrics(**counts: int) -> str:
    """As a worker serves them: one of the causes for which records are filtered is a label."""
    lines = []
    for name, count in counts.items():
        full = f"calving_records_{name}"
        label = '{cause="tombstone"}' if name == "filtered" else ""
        lines += [f"# TYPE {full} counter", f"{full}_total{label} {count}"]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize(
    ("filtered", "left"),
    [(10, 0), (9, 1), (11, -1)],
)
def test_every_record_that_was_read_is_somewhere(filtered: int, left: int) -> None:
    assert imbalance(metrics(read=100, written=85, dead_lettered=5, filtered=filtered)) == left


def test_a_record_that_is_copied_to_a_second_table_is_written_twice() -> None:
    assert imbalance(metrics(read=100, copied=3, written=90, superseded=7, deleted=6)) == 0


@pytest.fixture
def wrong() -> Iterator[str]:
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


def test_a_worker_that_does_not_count_what_it_filters_does_not_add_up(wrong: str, tmp_path: Path) -> None:
    telling, silent = tmp_path / "a.log", tmp_path / "b.log"
    telling.write_text(f"the status page: {wrong}\n")
    silent.write_text("no page yet\n")
    assert books([telling, silent]) == (1, 1)
