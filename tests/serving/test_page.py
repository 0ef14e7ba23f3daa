"""The status page in a real browser. ``make pictures`` keeps what it looks like in docs/images/page."""

from __future__ import annotations

import json
import os
import re
import shutil
import struct
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest

from calving.model.events import Leader
from calving.model.offsets import TopicPartition
from calving.serving.history import History
from calving.serving.pages import page_text
from calving.status.values import PartitionStatus, Status
from tests.serving.sinks import Worker, not_leading, serving, status

PICTURES = Path(__file__).parents[2] / "docs" / "images" / "page"
CHROMIUM = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), ""
)
pytestmark = pytest.mark.skipif(not CHROMIUM, reason="needs chromium")


def an_hour(found: Status, now: float) -> History:
    """Samples as of a sink that was like this for an hour, with a time in the middle when it fell behind."""
    history = History()
    for n in range(360):
        at = now - 10.0 * (360 - n)
        late = max(0, 60 - abs(n - 200))
        tables = {
            name: replace(t, valid_through_us=int((at - 6 - n % 7 - late * 0.8) * 1e6)) if t.cycles == 0 else t
            for name, t in found.log.tables.items()
        }
        partitions = {
            tp: replace(p, position=p.end - (500 + 37 * (n % 11) + 150 * late))
            for tp, p in found.worker.partitions.items()
        }
        coordinator = found.coordinator
        cycle = coordinator.recent[n % 20]
        commits = tuple(
            replace(c, seconds=0.18 + 0.012 * ((n * 7 + i) % 13) + 0.01 * late) for i, c in enumerate(cycle.tables)
        )
        history.sample(
            replace(
                found,
                log=replace(found.log, tables=tables),
                worker=replace(found.worker, partitions=partitions),
                coordinator=replace(coordinator, recent=(replace(cycle, commit_id=str(n), tables=commits),)),
            ),
            at,
        )
    return history


@pytest.mark.parametrize(
    ("name", "size", "dark", "tables", "broken"),
    [
        ("healthy", (1280, 1750), False, 4, 0),
        ("degraded", (1280, 1750), True, 20, 2),
        ("300-tables", (1280, 1750), False, 300, 1),
        ("narrow", (400, 1800), False, 4, 1),
    ],
)
def test_the_page_draws_a_sink(
    name: str, size: tuple[int, int], dark: bool, tables: int, broken: int, tmp_path: Path
) -> None:
    now = time.time()
    found = status(now, tables=tables, broken=broken)
    with serving(Worker(found), history=an_hour(found, now)) as client:
        drawn = browse(client.url, tmp_path, "--dump-dom")
        browse(
            client.url,
            tmp_path,
            f"--screenshot={tmp_path / 'page.png'}",
            f"--window-size={size[0]},{size[1]}",
            *(["--blink-settings=preferredColorScheme=0"] if dark else []),
        )
    assert 'data-drawn="yes"' in drawn
    assert ("DEGRADED</span>" in drawn) == (broken > 0)
    assert drawn.count("<svg") >= 2 * min(50, tables) + 6 - broken
    assert ("the catalog answers 500" in drawn) == (broken > 0)
    assert f"{min(50, tables)} of {tables}" in drawn or tables <= 50
    picture = (tmp_path / "page.png").read_bytes()
    assert struct.unpack(">II", picture[16:24]) == size
    if os.environ.get("CALVING_PICTURES"):
        PICTURES.mkdir(parents=True, exist_ok=True)
        (PICTURES / f"{name}.png").write_bytes(picture)


def browse(url: str, folder: Path, *options: str, budget: int = 4_000) -> str:
    command = [
        CHROMIUM,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
        f"--user-data-dir={folder / 'profile'}",
    ]
    done = subprocess.run(
        [*command, f"--virtual-time-budget={budget}", *options, url],
        capture_output=True,
        text=True,
        timeout=90,
        check=True,
    )
    return done.stdout


@pytest.mark.parametrize(("waiting", "shown"), [(300, r"35</b>.*?the oldest waits for 5 min"), (None, r"35</b>")])
def test_records_that_are_not_visible_stand_before_records_to_read(
    waiting: float | None, shown: str, tmp_path: Path
) -> None:
    found = status(time.time())
    since = None if waiting is None else time.time() - waiting
    held = {TopicPartition("orders", 0): PartitionStatus(80, 100, 65, waiting_since=since)}
    worker = replace(found.worker, partitions=held, hidden=0)
    with serving(Worker(replace(found, worker=worker))) as client:
        drawn = browse(client.url, tmp_path, "--dump-dom")
    cards = re.search(r'id="cards".*', drawn, re.DOTALL)
    assert cards is not None
    first, _ = cards[0].split("records to read", 1)
    assert re.search(f"records not visible.*?{shown}", first, re.DOTALL)
    assert ("the oldest waits" in first) == (waiting is not None)


def test_names_that_are_markup_are_shown_as_text(tmp_path: Path) -> None:
    found = status(time.time())
    evil = "<img src=x onerror=document.body.dataset.evil=1>"
    tables = {**found.log.tables, evil: next(iter(found.log.tables.values()))}
    with serving(Worker(replace(found, log=replace(found.log, tables=tables)))) as client:
        drawn = browse(client.url, tmp_path, "--dump-dom")
    assert "&lt;img src=x" in drawn
    assert "data-evil" not in drawn


def test_a_table_may_be_called_like_what_every_object_has(tmp_path: Path) -> None:
    found = status(time.time())
    (table, *_) = found.log.tables.values()
    tables = {**found.log.tables, **dict.fromkeys(("constructor", "toString", "__proto__"), table)}
    with serving(Worker(replace(found, log=replace(found.log, tables=tables)))) as client:
        drawn = browse(client.url, tmp_path, "--dump-dom")
    assert 'data-drawn="yes"' in drawn
    assert all(f">{name}</a>" in drawn for name in ("constructor", "toString", "__proto__"))


def test_a_worker_that_does_not_lead_names_the_leader_without_a_link(tmp_path: Path) -> None:
    found = not_leading(status(time.time()))
    found = replace(found, log=replace(found.log, leader=Leader("m-2", "k2", "https://k2:8083/")))
    with serving(Worker(found)) as client:
        drawn = browse(client.url, tmp_path, "--dump-dom")
    assert "running, led by https://k2:8083/ on k2" in drawn
    assert 'href="https://k2' not in drawn


def test_row_mutations_are_shown_where_there_are_any(tmp_path: Path) -> None:
    found = status(time.time())
    with serving(Worker(found)) as client:
        drawn = browse(client.url, tmp_path, "--dump-dom")
    assert (
        '<section id="changes" aria-labelledby="changeshead">' in drawn
        and "deletes without a row" in drawn
        and "500 keys, 470 rows" in drawn
    )
    plain = replace(found, coordinator=replace(found.coordinator, mutations={}))
    with serving(Worker(plain)) as client:
        drawn = browse(client.url, tmp_path, "--dump-dom")
        assert '<section id="changes" aria-labelledby="changeshead" hidden="">' in drawn


def test_a_worker_that_starts_over_says_why(tmp_path: Path) -> None:
    found = status(time.time())
    error = "UnavailableError: table db.t <cannot> be loaded"
    worker = replace(found.worker, joined=False, leads=False, error=error)
    with serving(Worker(replace(found, worker=worker))) as client:
        drawn = browse(client.url, tmp_path, "--dump-dom")
    assert "Why it does not run" in drawn
    assert "<b>starts-over</b> <span>UnavailableError: table db.t &lt;cannot&gt; be loaded</span>" in drawn
    assert "<code>calving validate FILE</code>" in drawn and 'href="on-call#starts-over"' in drawn


STEPS = """
const sleep = ms => new Promise(done => setTimeout(done, ms));
const answers = ANSWERS;
let looks = 0;
window.fetch = async path => {
  const name = path.split("?")[0];
  if (name === "api/status") { looks++; answers[name].now += 2; answers[name].read += 1000; }
  return {ok: name in answers, status: 404, json: async () => structuredClone(answers[name])};
};
const told = (name, value) => { document.body.dataset[name] = value; };
const rows = id => [...document.querySelectorAll(`#${id} tbody tr`)].map(row => row.querySelector("th").textContent);
window.addEventListener("load", async () => {
  const looked = async () => { const before = looks; while (looks < before + 2) await sleep(100); };
  await looked();
  const row = document.querySelector("#tables tbody tr"), range = document.createRange();
  range.selectNodeContents(row.children[0]);
  document.getSelection().addRange(range);
  const text = document.getSelection().toString(), age = row.children[1].textContent;
  await looked();
  told("kept", text !== "" && document.getSelection().toString() === text && row.isConnected && row.children[1].textContent !== age);
  document.getSelection().removeAllRanges();
  document.dispatchEvent(new KeyboardEvent("keydown", {key: "/", bubbles: true}));
  told("focused", document.activeElement.id);
  $("filter").value = "T001";
  $("filter").dispatchEvent(new Event("input"));
  await looked();
  told("filtered", rows("tables").join());
  const link = document.querySelector("#tables tbody a");
  link.focus();
  link.click();
  await looked();
  told("opened", document.activeElement.id + " " + $("detailhead").textContent + " " + rows("detailcommits").length);
  document.activeElement.dispatchEvent(new KeyboardEvent("keydown", {key: "Escape", bubbles: true}));
  told("closed", $("detail").hidden + " " + (document.activeElement === link));
  $("settings").open = true;
  await looked();
  told("config", rows("config").length);
  told("heads", [...document.querySelectorAll("section table")].every(t => t.hidden || (t.caption.textContent && t.tHead.rows[0].cells[0].scope === "col")));
  answers["api/status"].progress.share = null;
  answers["api/status"].progress.remaining = null;
  await looked();
  told("unknown", $("bar").hasAttribute("aria-valuenow") + " " + $("progress").textContent);
  delete answers["api/tables"];
  while (!document.body.classList.contains("stale")) await sleep(100);
  told("stale", $("health").textContent + " " + $("state").textContent);
});
"""


def test_a_page_that_is_used_keeps_its_place_and_says_what_it_does_not_know(tmp_path: Path) -> None:
    with serving(Worker(status(time.time()))) as client:
        paths = ["api/status", "api/tables", "api/partitions", "api/commits", "api/events", "api/history"]
        paths += ["api/tables/db.t001", "connectors/orders/config"]
        answers = {path: client.get(path).json for path in paths}
    steps = STEPS.replace("ANSWERS", json.dumps(answers))
    page = tmp_path / "page.html"
    page.write_text(page_text()[0].replace("<script>", f"<script>{steps}</script><script>", 1))
    drawn = browse(page.as_uri(), tmp_path, "--dump-dom", budget=40_000)
    told = dict(re.findall(r'data-(\w+)="([^"]*)"', drawn.partition("<body")[2].partition(">")[0]))
    config = len(answers["connectors/orders/config"])
    assert told.pop("stale").startswith("no answer what stands here is from ")
    assert told == {
        "drawn": "yes",
        "kept": "true",
        "focused": "filter",
        "filtered": "db.t001",
        "opened": "detail Table db.t001 20",
        "closed": "true true",
        "config": str(config),
        "heads": "true",
        "unknown": "false how much is to read is not known yet",
    }
