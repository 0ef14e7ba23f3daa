"""The server under attack: by web sites, by clients without a token, and by floods and silence."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import logging
import socket
import ssl
import threading
import time
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from calving.cli import health
from calving.cli.health import commit_seconds_of, read_token, reasons_of
from calving.errors import ConfigError
from calving.model.events import Leader
from calving.serving import server as status_server
from calving.serving.connect import validated
from calving.serving.server import StatusServer
from tests.serving.sinks import TOKEN, Client, Worker, serving, sink, status
from tests.serving.test_http import READS
from tests.tls import Authority

READ_TOKEN = "fedcba9876543210"
OPEN = {"iceberg.http.host": "0.0.0.0", "iceberg.http.token": TOKEN}


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with serving(Worker(status(time.time()))) as found:
        yield found


@pytest.mark.parametrize("name", ["nobody.has.made.it", "a." * 400 + "a", "a." * 7_000 + "a"])
def test_a_logger_that_is_not_there_is_not_made_by_asking_for_it(name: str, client: Client) -> None:
    before = set(logging.root.manager.loggerDict)
    assert client.get(f"/admin/loggers/{name}").code in (404, 414)
    assert client.ask("PUT", f"/admin/loggers/{name}", {"level": "DEBUG"}).code in (404, 414)
    made = set(logging.root.manager.loggerDict) - before
    assert not any(each.startswith(("nobody", "a.")) for each in made)


def test_a_query_has_a_length_that_is_served(client: Client) -> None:
    assert client.get("/api/history?" + "age=db.t000&" * 1_500).code in (400, 414)


SITE = "https://evil.example.com"


@pytest.mark.parametrize(
    ("path", "headers", "code"),
    [
        ("/api/status", {"Sec-Fetch-Site": "cross-site"}, 403),
        ("/api/status", {"Sec-Fetch-Site": "same-site"}, 403),
        ("/healthz", {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"}, 403),
        ("/api/status", {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}, 403),
        ("/", {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"}, 403),
        ("/", {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}, 200),
        ("/api/status", {"Sec-Fetch-Site": "same-origin"}, 200),
        ("/api/status", {"Sec-Fetch-Site": "none"}, 200),
        ("/metrics", {"Origin": SITE}, 403),
        ("/metrics", {"Origin": "null"}, 403),
        ("/metrics", {"Origin": "http://127.0.0.1:1"}, 403),
        ("/metrics", {"Origin": "http://["}, 403),
        ("/metrics", {"Origin": "http://a@HOST"}, 403),
        ("/metrics", {"Origin": "http://HOST"}, 200),
    ],
)
@pytest.mark.parametrize("keys", [{}, {**OPEN, "iceberg.http.allowed-hosts": "*"}], ids=["loopback", "everywhere"])
def test_a_page_of_another_site_gets_nothing(
    path: str, headers: dict[str, str], code: int, keys: dict[str, str]
) -> None:
    with serving(Worker(status(time.time())), sink(**keys)) as client:
        host = client.url.split("/")[2]
        given = {name: value.replace("HOST", host) for name, value in headers.items()}
        answer = client.get(path, **given)
    assert answer.code == code
    assert not [name for name in answer.headers if name.lower().startswith("access-control")]


ADVERTISED = {"iceberg.http.advertised-url": "https://sinks.example.com/orders/"}


@pytest.mark.parametrize(
    ("keys", "host", "code"),
    [
        ({}, "127.0.0.1:8083", 200),
        ({}, "[::1]:8083", 200),
        ({}, "localhost", 200),
        ({}, "evil.example.com", 400),
        ({}, "127.0.0.1.evil.example.com", 400),
        ({}, "127.0.0.1:80@evil.example.com", 400),
        ({}, "[::1]evil.example.com", 400),
        (OPEN, "10.1.2.3:8083", 200),
        (OPEN, socket.gethostname(), 200),
        (OPEN, "evil.example.com", 400),
        ({**OPEN, **ADVERTISED}, "sinks.example.com", 200),
        ({**OPEN, **ADVERTISED}, "SINKS.example.com.:443", 200),
        ({**OPEN, **ADVERTISED}, "other.example.com", 400),
        ({**OPEN, **ADVERTISED, "iceberg.http.allowed-hosts": "a.example.com, b.example.com"}, "b.example.com", 200),
        ({**OPEN, "iceberg.http.allowed-hosts": "*"}, "any.example.com", 200),
    ],
)
def test_a_server_answers_to_its_names_alone(keys: dict[str, str], host: str, code: int) -> None:
    with serving(Worker(status(time.time())), sink(**keys)) as client:
        assert client.get("/api/status", Host=host).code == code


def test_a_page_behind_a_proxy_reads_from_its_own_server() -> None:
    with serving(Worker(status(time.time())), sink(**OPEN, **ADVERTISED)) as client:
        assert client.get("/api/status", Origin="https://sinks.example.com").code == 200


def test_with_a_read_token_probes_show_errors_to_those_who_have_it_alone() -> None:
    failed = replace(status(time.time()).worker, joined=False, error="table db.t000 is failing")
    worker = Worker(replace(status(time.time()), worker=failed))
    with serving(worker, sink(**{"iceberg.http.read-token": READ_TOKEN})) as client:
        without, with_token = (client.get("/readyz", **h) for h in ({}, {"Authorization": f"Bearer {READ_TOKEN}"}))
    assert without.code == with_token.code == 503
    assert "db.t000" in with_token.text and "db.t000" not in without.text


def test_with_a_read_token_only_probes_are_answered_without_it() -> None:
    keys = {"iceberg.http.read-token": READ_TOKEN, "iceberg.http.token": TOKEN}
    password = base64.b64encode(f"anybody:{READ_TOKEN}".encode()).decode()
    with serving(Worker(status(time.time())), sink(**keys)) as client:
        for path in READS:
            refused = client.get(path)
            assert refused.code == (200 if path in ("/healthz", "/readyz") else 401), path
            assert "hunter2" not in refused.text and "db.t000" not in refused.text
            for given in (f"Bearer {READ_TOKEN}", f"Bearer {TOKEN}", f"Basic {password}"):
                assert client.get(path, Authorization=given).code == 200
            assert client.get(path, Authorization="Bearer ").code == refused.code
        assert client.get("/", Accept="text/html").headers["www-authenticate"].startswith("Basic ")
        change = ("PUT", "/connectors/orders/pause")
        assert client.ask(*change, Authorization=f"Bearer {READ_TOKEN}").code == 403
        assert client.ask(*change, Authorization=f"Bearer {TOKEN}").code == 202


def test_a_token_for_reading_is_not_that_for_changes() -> None:
    with pytest.raises(ConfigError, match=r"iceberg\.http\.read-token"):
        sink(**{"iceberg.http.read-token": TOKEN, "iceberg.http.token": TOKEN})


@pytest.mark.parametrize(
    ("url", "is_told"),
    [
        ("http://127.0.0.1:8083/", True),
        ("http://127.0.0.1:9999/", False),
        ("https://a.example.com:8083/", True),
        ("https://evil.example.com:8083/", False),
        ("http://10.1.2.3:8083/", False),
        ("http://localhost:99999/", False),
        ("http://localhost:port/", False),
        ("http://[", False),
    ],
)
def test_a_url_of_the_control_log_gets_the_read_token_only_if_the_settings_name_it(url: str, is_told: bool) -> None:
    keys = {"iceberg.http.port": 8083, "iceberg.http.read-token": READ_TOKEN}
    configured = sink(**keys, **{"iceberg.http.allowed-hosts": "a.example.com"})
    assert (read_token(Leader("m-1", "here", url), configured.keys) == READ_TOKEN) is is_told


@pytest.mark.parametrize("link", ["redirects", "queries"])
def test_a_leader_that_leads_elsewhere_is_not_followed(link: str) -> None:
    asked: list[str | None] = []

    class Other(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.headers["Authorization"])
            self.send_response(302)
            self.send_header("Location", f"http://localhost:{server.server_port}/elsewhere")
            self.end_headers()

    server = ThreadingHTTPServer(("127.0.0.1", 0), Other)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}/{'?to=' if link == 'queries' else ''}"
    try:
        assert reasons_of(Leader("m-1", socket.gethostname(), url), "orders", READ_TOKEN) is None
    finally:
        server.shutdown()
        server.server_close()
    assert asked == ([f"Bearer {READ_TOKEN}"] if link == "redirects" else [])


OK = b"HTTP/1.1 200 OK\r\n"
CHANGE = b'[{"last_change":{"table":"t","commit_id":"c","steps":{"commit":%s}}}]'


@contextlib.contextmanager
def leader_that_answers(answer: bytes, drip: float = 0.0) -> Iterator[Leader]:
    """A leader that the control log names, whose every answer is these bytes. ``drip``: seconds between two of them."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            with client, contextlib.suppress(OSError):
                client.recv(65_536)
                for part in (answer[i : i + 1] for i in range(len(answer))) if drip else [answer]:
                    client.sendall(part)
                    time.sleep(drip)

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield Leader("m-1", socket.gethostname(), f"http://127.0.0.1:{listener.getsockname()[1]}")
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-OpenSSH_9.2\r\n",
        OK + b"".join(b"a%d: b\r\n" % i for i in range(200)) + b"\r\n",
        OK + b"a: " + b"b" * 70_000 + b"\r\n\r\n",
        OK + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
        OK + b"\r\n" + b"[" * 200_000,
        OK + b"\r\n" + CHANGE % (b"9" * 400),
    ],
    ids=["another protocol", "many headers", "a long header", "a wrong chunk", "deep", "a large number"],
)
def test_a_leader_whose_answer_is_none_says_nothing(answer: bytes) -> None:
    with leader_that_answers(answer) as leader:
        assert reasons_of(leader, "orders") is None
        assert commit_seconds_of(leader) is None


@pytest.mark.parametrize("number", [b"Infinity", b"NaN", b"1e999"])
def test_a_time_of_a_leader_that_is_no_number_is_left_out(number: bytes) -> None:
    with leader_that_answers(OK + b"\r\n" + CHANGE % number) as leader:
        assert commit_seconds_of(leader) == {}


def test_a_leader_that_answers_byte_by_byte_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "_ALL_SECONDS", 0.3)
    with leader_that_answers(OK + b"a: b\r\n" * 200, drip=0.01) as leader:
        begin = time.monotonic()
        assert reasons_of(leader, "orders") is None
        assert time.monotonic() - begin < 5


VALIDATE = b"PUT /connector-plugins/calving/config/validate HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer %s\r\n"


def answered(port: int, request: bytes) -> bytes:
    """The answer to a request that a client might not send."""
    with socket.create_connection(("127.0.0.1", port), 5) as connection:
        connection.sendall(request)
        return connection.recv(65_536)


@pytest.mark.parametrize(
    "request_bytes",
    [
        VALIDATE % TOKEN.encode() + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        VALIDATE % TOKEN.encode() + b"Content-Length: 50000\r\n\r\n" + b"[" * 50_000,
    ],
    ids=["two lengths", "deep"],
)
def test_an_odd_body_is_the_clients_error(request_bytes: bytes) -> None:
    with serving(Worker(status(time.time())), sink(**{"iceberg.http.token": TOKEN})) as client:
        assert answered(urlsplit(client.url).port or 0, request_bytes).startswith(b"HTTP/1.1 400 ")


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"\ud800": "x"}, "surrogate"),
        ({"name": "x\udfff"}, "surrogate"),
        ({f"iceberg.z{i}": "" for i in range(6_000)}, "6000 keys, more than 5000"),
    ],
    ids=["key", "value", "keys"],
)
def test_a_configuration_that_cannot_be_one_is_the_clients_error(config: dict[str, str], reason: str) -> None:
    with serving(Worker(status(time.time())), sink(**{"iceberg.http.token": TOKEN})) as client:
        answer = client.ask(
            "PUT", "/connector-plugins/calving/config/validate", config, Authorization=f"Bearer {TOKEN}"
        )
    assert answer.code == 400 and reason in answer.json["message"]


def test_probes_are_answered_while_a_configuration_is_validated(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, may_end, told_to_end = threading.Event(), threading.Event(), list[bool]()

    def slow(config: Mapping[str, str]) -> dict[str, str]:
        begun.set()
        told_to_end.append(may_end.wait(5))
        return {}

    monkeypatch.setattr("calving.serving.connect.validated", slow)
    with serving(Worker(status(time.time())), sink(**{"iceberg.http.token": TOKEN})) as client:
        request = VALIDATE % TOKEN.encode() + b"Content-Length: 2\r\n\r\n{}"
        with socket.create_connection(("127.0.0.1", urlsplit(client.url).port or 0), 5) as connection:
            connection.sendall(request)
            assert begun.wait(10)
            assert client.get("/healthz").code == 200
            may_end.set()
            assert connection.recv(65_536).startswith(b"HTTP/1.1 200 ")
    assert told_to_end == [True]


def test_a_configuration_of_many_wrong_keys_is_checked_at_once() -> None:
    began = time.process_time()
    wrong = validated({f"iceberg.http.x{i}": "" for i in range(10_000)})
    assert time.process_time() - began < 5.0
    assert wrong["error_count"] == 1


@pytest.mark.parametrize(
    ("key", "piece"),
    [
        ("iceberg.catalog.uri", "a://:"),
        ("kafka.bootstrap.servers", "a://:"),
        ("iceberg.tables", "a,"),
        ("topics", ","),
        ("topics.regex", "${env:"),
    ],
)
def test_a_long_value_of_a_configuration_is_checked_at_once(key: str, piece: str) -> None:
    """No other thread runs while one search goes on in a text, so probes would get no answer."""
    began = time.process_time()
    validated({"name": "s", "topics": "t", key: piece * (200_000 // len(piece))})
    assert time.process_time() - began < 5.0


def test_a_long_list_of_different_names_is_checked_at_once() -> None:
    began = time.process_time()
    validated({"name": "s", "topics": ",".join(f"t{i}" for i in range(40_000))})
    assert time.process_time() - began < 5.0


def test_a_sample_of_dead_letters_shows_no_value_unless_a_key_says_so(client: Client) -> None:
    place = "topic 'orders', partition 2, offset 93120"
    assert client.get("/api/status").json["dead_letter_samples"] == [place]
    with serving(Worker(status()), sink(**{"iceberg.http.show-values": "true"})) as showing:
        (sample,) = showing.get("/api/status").json["dead_letter_samples"]
    assert sample == f"{place}: field 'amount': ' 12' is not a double"


@pytest.mark.parametrize("path", [*READS, "/nothing", "/connectors/other/status"])
def test_no_answer_can_be_framed_guessed_at_or_kept(path: str, client: Client) -> None:
    for accept in ("text/html", "*/*"):
        headers = client.get(path, Accept=accept).headers
        policy = headers["content-security-policy"]
        wanted = ("default-src 'none'", "frame-ancestors 'none'", "base-uri 'none'", "form-action 'none'")
        assert all(each in policy for each in wanted)
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cross-origin-resource-policy"] == "same-origin"
        assert headers["cache-control"] in ("no-store", "no-cache")


@pytest.mark.parametrize("version", ["x", "9" * 5_000, "1.0.0.0.0", "-1", "1e9", ""])
def test_metrics_have_a_form_for_every_version_that_a_client_may_ask_for(version: str, client: Client) -> None:
    answer = client.get("/metrics", Accept=f"application/openmetrics-text; version={version}")
    assert answer.code == 200 and "# TYPE calving_" in answer.text


def test_a_request_that_fails_takes_one_line_of_the_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("calving.serving.views.tables", lambda status, now: dict[str, str]()["x\ny"])
    with serving(Worker(status())) as failing:
        answer = failing.get("/api/tables")
    assert (answer.code, answer.json["error_code"]) == (500, 500)
    (line,) = (record for record in caplog.records if record.levelno >= logging.ERROR)
    assert line.getMessage() == r"the answer to GET '/api/tables' fails: KeyError('x\ny')" and line.exc_info is None


def test_requests_that_are_cut_off_when_the_server_closes_leave_nothing_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = logging.getLogger("uvicorn.error")
    server.error("Exception in ASGI application", exc_info=asyncio.CancelledError())
    server.error("Exception in ASGI application", exc_info=ValueError("another"))
    assert [str(record.exc_info and record.exc_info[1]) for record in caplog.records] == ["another"]


def connected(client: Client, sent: bytes = b"") -> socket.socket:
    host, _, port = client.url.split("/")[2].partition(":")
    found = socket.create_connection((host, int(port)), timeout=10)
    found.sendall(sent)
    return found


@contextlib.contextmanager
def many(client: Client, number: int, sent: bytes = b"") -> Iterator[list[socket.socket]]:
    with contextlib.ExitStack() as opened:
        yield [opened.enter_context(connected(client, sent)) for _ in range(number)]


GET = "GET {} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


@pytest.mark.parametrize(
    ("number", "sent"),
    [
        (110, b""),
        (300, b"GET /api/status HTTP/1.1\r\nHost: "),
        (110, GET.format("/api/status").encode()),  # they never read
        (110, GET.format("/metrics").encode() * 3),
        (50, b"\x16\x03\x01" * 100),
    ],
    ids=["silent", "half a head", "no reader", "pipelined", "no http"],
)
def test_probes_and_readers_are_answered_under_attack(number: int, sent: bytes, client: Client) -> None:
    with many(client, number, sent):
        started = time.monotonic()
        assert client.get("/healthz").code == client.get("/readyz").code == 200
        assert time.monotonic() - started < 2
        for _ in range(50):  # once the attackers' own answers are made
            if (code := client.get("/api/status").code) == 200:
                break
        assert code == 200


@pytest.mark.parametrize(
    "sent",
    [b"", b"GET /healthz", GET.format("/healthz").encode() + b"GET /", b"POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\n"],
    ids=["silent", "half a head", "idle", "half a body"],
)
def test_a_client_that_sends_nothing_more_is_disconnected(
    sent: bytes, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(status_server, "HEAD_SECONDS", 0.2)
    monkeypatch.setattr(status_server, "IDLE_SECONDS", 0.2)
    with connected(client, sent) as waiting, contextlib.suppress(ConnectionResetError):
        while waiting.recv(65_536):
            pass


def test_a_client_that_sends_a_byte_now_and_then_has_no_more_time(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(status_server, "HEAD_SECONDS", 0.3)
    with connected(client) as slow, pytest.raises(OSError):
        for _ in range(200):
            slow.sendall(b"G")
            time.sleep(0.01)


def test_the_limits_are_those_of_the_manual() -> None:
    assert (status_server.HEAD_SECONDS, status_server.IDLE_SECONDS, status_server.MOST) == (10.0, 30.0, 100)


def test_attackers_write_nothing_into_the_log(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    for sent in (
        b"\x00\xff\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n",
    ):
        with connected(client, sent) as attacker:
            attacker.recv(1_000)
    assert client.get("/healthz").code == 200
    assert not [r for r in caplog.records if r.levelno >= logging.WARNING]


@pytest.mark.parametrize("path", ["/nothing", "/healthz", "/connector-plugins/calving/config/validate"])
@pytest.mark.parametrize("has_answer", [False, True], ids=["before the answer", "after the answer"])
def test_a_body_that_breaks_off_writes_nothing_into_the_log(
    path: str, has_answer: bool, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    head = f"PUT {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
    broken = b"2\r\n{}no chunk\r\n"
    with connected(client, head if has_answer else head + broken) as attacker:
        answers = attacker.recv(65_536)
        if has_answer:
            attacker.sendall(broken)
        with contextlib.suppress(ConnectionError):
            while part := attacker.recv(65_536):
                answers += part
    assert answers.count(b"HTTP/1.1 ") == 1
    assert client.get("/healthz").code == 200
    assert not [r for r in caplog.records if r.levelno >= logging.WARNING]


def test_silent_clients_do_not_keep_others_from_https(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status_server, "HEAD_SECONDS", 1.0)
    authority = Authority(tmp_path)
    pair = authority.issue("server")
    keys = {"iceberg.http.tls-certificate-file": pair.certificate, "iceberg.http.tls-key-file": pair.key}
    server = StatusServer(sink(**keys), Worker(status()))
    trusting = ssl.create_default_context(cafile=str(authority.certificate))
    try:
        with many(Client(server.url), 110) as silent:
            with urllib.request.urlopen(f"{server.url}healthz", timeout=10, context=trusting) as answer:
                assert answer.status == 200
            with contextlib.suppress(ConnectionResetError):
                assert silent[-1].recv(1) == b""
    finally:
        server.close()
