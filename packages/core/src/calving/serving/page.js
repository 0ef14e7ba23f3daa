"use strict";
const SHOWN = 50, SVG = "http://www.w3.org/2000/svg";
const $ = id => document.getElementById(id);
const number = n => n == null ? "–" : Math.round(n).toLocaleString("en");
const bytes = n => {
  if (n == null) return "–";
  let unit = 0;
  for (; n >= 1024 && unit < 5; unit++) n /= 1024;
  return (unit && n < 10 ? n.toFixed(1) : Math.round(n)) + " " + ["B", "KiB", "MiB", "GiB", "TiB", "PiB"][unit];
};
const seconds = s => s == null ? "–" : s < 1 ? Math.round(s * 1000) + " ms" : s < 10 ? s.toFixed(1) + " s"
  : s < 120 ? Math.round(s) + " s" : s < 7200 ? Math.round(s / 60) + " min" : s < 172800 ? Math.round(s / 3600) + " h"
  : Math.round(s / 86400) + " d";
const ago = (at, now) => at == null ? "–" : seconds(Math.max(0, now - at)) + " ago";
const speed = n => n != null && n > 0 && n < 10 ? n.toFixed(1) : number(n);
const records = n => number(n) + (n === 1 ? " record" : " records");
// A table may be called like what every object has, such as constructor.
const own = (series, name) => Object.hasOwn(series, name) ? series[name] : null;
const sum = counts => Object.values(counts).reduce((a, b) => a + b, 0);

// Text only: what a topic or a table is called is never markup.
function make(tag, inside, kind) {
  const made = document.createElement(tag);
  if (kind) made.className = kind;
  for (const each of [].concat(inside ?? [])) made.append(each instanceof Node ? each : String(each));
  return made;
}

// What has not changed stays as it is, and so does what is selected: a selection, the focus and the place of a screen
// reader survive the next look.
function isSelected(node) {
  const selection = document.getSelection();
  return selection != null && !selection.isCollapsed && selection.containsNode(node, true);
}
function change(node, sign, build) {
  if (node.sign === sign || isSelected(node)) return;
  node.sign = sign;
  node.replaceChildren(...[].concat(build()));
}
const put = (node, text) => change(node, String(text), () => String(text));
function sync(parent, items, tag, draw) {
  const wanted = new Set(items.map(item => item.key)), before = new Map();
  for (const child of [...parent.children])
    if (wanted.has(child.dataset.key)) before.set(child.dataset.key, child); else child.remove();
  items.forEach((item, i) => {
    let child = before.get(item.key);
    if (!child) (child = make(item.tag ?? tag)).dataset.key = item.key;
    if (parent.children[i] !== child) parent.insertBefore(child, parent.children[i] ?? null);
    draw(child, item);
  });
}

// A cell is a text, or {text, kind, title, link, note, sign, build}. A name of a column that begins with ~ is for wide screens.
function cellOf(node, cell, wide) {
  const c = cell != null && typeof cell === "object" ? cell : {text: cell ?? "–"};
  node.className = [c.kind, wide ? "wide" : ""].filter(Boolean).join(" ");
  if (c.title) node.title = c.title;
  change(node, JSON.stringify([c.text, c.link, c.note, c.sign]), () => {
    if (c.build) return c.build();
    if (!c.link) return String(c.text ?? "–");
    const link = make("a", c.text);
    link.href = c.link;
    return c.note ? [link, make("small", c.note, "bad")] : link;
  });
}
function fill(id, caption, head, rows) {
  const table = $(id);
  if (!table.tHead) {
    table.append(make("caption", caption), make("thead", make("tr", head.map(h => {
      const cell = make("th", h.replace("~", ""), h.startsWith("~") ? "wide" : "");
      cell.scope = "col";
      return cell;
    }))), make("tbody"));
  }
  sync(table.tBodies[0], rows.map(([key, ...cells]) => ({key, cells})), "tr", (row, {cells}) => {
    cells.forEach((cell, i) => {
      if (!row.children[i]) {
        row.append(make(i ? "td" : "th"));
        if (!i) row.children[0].scope = "row";
      }
      cellOf(row.children[i], cell, head[i].startsWith("~"));
    });
  });
}
function chart(values, title) {
  const known = (values || []).map((v, i) => [i, v]).filter(p => p[1] != null);
  if (known.length < 2) return {text: "·", kind: "soft"};
  const most = Math.max(...known.map(p => p[1])) || 1, last = values.length - 1 || 1;
  const points = known.map(([i, v]) => (100 * i / last).toFixed(1) + " " + (21 - 20 * v / most).toFixed(1));
  const text = title(most), sign = points.join("L") + text;
  return {sign, build: () => {
    const made = document.createElementNS(SVG, "svg");
    made.setAttribute("viewBox", "0 0 100 22");
    made.setAttribute("width", "100"); made.setAttribute("height", "22");
    made.setAttribute("preserveAspectRatio", "none"); made.setAttribute("role", "img");
    const name = document.createElementNS(SVG, "title");
    name.textContent = text;
    made.append(name);
    const x0 = points[0].split(" ")[0], x1 = points[points.length - 1].split(" ")[0];
    for (const [d, kind] of [["M" + points.join("L") + `L${x1} 22L${x0} 22Z`, "area"], ["M" + points.join("L"), ""]]) {
      const path = document.createElementNS(SVG, "path");
      path.setAttribute("d", d);
      if (kind) path.setAttribute("class", kind);
      made.append(path);
    }
    return made;
  }};
}
function steps(tables) {
  const total = {};
  for (const t of tables) for (const [step, s] of Object.entries(t.steps)) total[step] = (total[step] || 0) + s;
  const all = sum(total);
  const text = Object.entries(total).map(([step, s]) => step + " " + seconds(s)).join(", ");
  return {sign: text, build: () => {
    const bar = make("span", [], "bar");
    bar.title = text;
    bar.setAttribute("role", "img");
    bar.setAttribute("aria-label", text);
    for (const step of ["load", "resolve", "write", "commit"]) if (total[step]) {
      const part = make("i", [], step);
      part.style.width = 100 * total[step] / all + "%";
      bar.append(part);
    }
    return bar;
  }};
}
function changed(tables) {
  const total = name => tables.reduce((all, t) => all + (t.mutations ? t.mutations[name] : 0), 0);
  return tables.some(t => t.mutations) ? `${number(total("keys"))} keys, ${number(total("superseded"))} rows` : "";
}
const tableLink = name => "#table/" + encodeURIComponent(name);
const partitionLink = p => "#partition/" + encodeURIComponent(p.topic) + "/" + p.partition;
const ageTitle = most => "age of the data, at most " + seconds(most);
const commitTitle = most => "commit time, at most " + seconds(most);
const recordsTitle = most => "at most " + number(most) + " records";

async function get(path) {
  const answer = await fetch(path, {cache: "no-store"});
  if (!answer.ok) throw new Error(path + ": " + answer.status);
  return answer.json();
}
function samples(tables, partitions) {
  const asked = new URLSearchParams();
  for (const t of tables) { asked.append("age", t.table); asked.append("commit", t.table); }
  for (const p of partitions) asked.append("lag", p.topic + "-" + p.partition);
  return get("api/history?" + asked);
}
function drawHead(s) {
  document.title = s.sink + " · " + s.health;
  put($("name"), s.sink);
  put($("health"), s.health);
  $("health").className = "badge " + ({OK: "ok", STARTING: "soft"}[s.health] ?? "bad");
  put($("state"), s.state.toLowerCase() + (s.leads ? ", leads" : s.leader.member == null ? ""
    : ", led by " + (s.leader.url ?? s.leader.member) + " on " + s.leader.host));
  put($("facts"), `calving ${s.version} · ${s.backend} · ${s.engine} · group ${s.group} · up ${seconds(s.now - s.started_at)}`);
  const why = [...s.troubles.map(t => ({...t, cause: t.trouble, subject: "", text: t.trouble === "starts-over" ? s.error : ""})), ...s.reasons];
  $("why").hidden = !why.length;
  put($("whyhead"), s.reasons.length ? "Why it is degraded" : s.error && s.state === "STARTING" ? "Why it does not run" : "Why it is not well yet");
  sync($("reasons"), why.slice(0, SHOWN).map(r => ({key: r.cause + " " + r.subject, ...r})), "li", (item, r) => {
    if (!item.children.length) {
      const link = make("a", "what to do");
      link.href = "on-call#" + r.cause;
      item.append(make("p", [make("b", r.cause), " ", make("span")]), make("p", r.meaning, "soft"),
        make("p", ["next: ", make("code", r.command), " · ", link]));
    }
    put(item.children[0].lastChild, r.text);
    const isFirst = why.find(other => other.cause === r.cause).subject === r.subject;  // what to do is said once
    item.children[1].hidden = item.children[2].hidden = !isFirst;
  });
  // Read aloud when it changes: without the seconds in the sentences, which change all the time.
  put($("said"), `${s.sink}: ${s.health}` + why.slice(0, 5).map(r => `, ${r.cause} ${r.subject}`).join(""));
  drawProgress(s);
  sync($("cards"), [
    ["records not visible", s.progress.remaining == null ? "–" : number(s.not_visible), s.waiting_since == null ? ""
      : "the oldest waits for " + seconds(s.now - s.waiting_since)],
    ["records to read", number(s.progress.remaining), s.hidden ? "hidden by open transactions: " + number(s.hidden) : ""],
    ["records/s", speed(s.progress.rate), s.progress.rate == null ? "not measured yet" : ""],
    ["last cycle", ago(s.cycle_at, s.now), "every " + seconds(s.interval)],
    ["records read", number(s.read), ""],
    ["committed here", number(s.committed_records), number(s.committed_files) + " files"],
    ["partitions", number(s.partitions), "of this worker"],
    ["dead letters", number(sum(s.dead_letters)), ""],
    ["restarts", number(s.restarts), ""],
  ].map(([key, value, note]) => ({key, value, note})), "div", (card, {key, value, note}) => {
    if (!card.children.length) {
      card.className = "card";
      card.append(make("span", key, "soft"), make("b"), make("span", [], "soft"));
    }
    put(card.children[1], value);
    put(card.children[2], note || " ");
  });
}
function paceOf(s) {
  const p = s.progress;
  if (p.remaining == null) return "how much is to read is not known yet";
  if (!p.remaining) return s.not_visible ? `all are read, ${records(s.not_visible)} ${s.not_visible === 1 ? "waits" : "wait"} for the next commit` : "caught up";
  const left = records(p.remaining) + " to read";
  if (p.rate == null) return left + ", speed and time left not measured yet";
  const reads = `${left}, ${speed(p.rate)} records/s`;
  if (p.seconds_left != null) return `${reads}, about ${seconds(p.seconds_left)} left`;
  return reads + ({"falling-behind": ", more come than are read", "keeping-up": ", keeps up with new records"}[p.pace] ?? ", time left not known yet");
}
function drawProgress(s) {
  const share = s.progress.share, bar = $("bar"), text = paceOf(s);
  const percent = share == null ? "" : Math.floor(100 * share) + "%";
  bar.firstChild.style.width = share == null ? "0" : 100 * share + "%";
  if (share == null) bar.removeAttribute("aria-valuenow"); else bar.setAttribute("aria-valuenow", Math.floor(100 * share));
  bar.setAttribute("aria-valuetext", text);
  put($("progress"), [percent, text].filter(Boolean).join("  "));
}
function drawTables(s, tables, shown, h) {
  put($("tablesnote"), shown.length < tables.length ? `${shown.length} of ${tables.length}` : number(tables.length));
  const idle = s.progress.remaining === 0 && !s.not_visible;
  fill("tables", "Tables: those in trouble first", ["table", "last commit", "~valid through", "age, last hour", "~commit", "~commit time, last hour",
    "~files", "~size", "buffered", "failures"], shown.map(t => [t.table,
    {text: t.table, link: tableLink(t.table), note: t.trouble, kind: t.trouble ? "bad" : ""}, ago(t.committed_at, s.now),
    ago(t.valid_through, s.now) + (idle && !t.trouble && !t.buffered_files ? ", nothing waits" : ""),
    chart(own(h.age, t.table), ageTitle), seconds(t.commit_seconds), chart(own(h.commit, t.table), commitTitle), number(t.files), bytes(t.bytes),
    {text: number(t.buffered_files), kind: t.cycles > 2 ? "bad" : ""}, {text: number(t.failures), kind: t.failures ? "bad" : ""}]));
}
function drawPartitions(s, all, shown, h) {
  put($("partitionsnote"), shown.length < all.length ? `${number(shown.length)} of ${number(all.length)}, those furthest behind first` : number(all.length));
  fill("partitions", "Partitions of this worker: those furthest behind first", ["partition", "~position", "~end", "to read", "to read, last hour", "not visible", "for"],
    shown.map(p => [p.topic + "-" + p.partition, {text: p.topic + "-" + p.partition, link: partitionLink(p)}, number(p.position), number(p.end),
      {text: number(p.source_lag), kind: p.source_lag ? "warn" : ""}, chart(own(h.lag, p.topic + "-" + p.partition), recordsTitle),
      number(p.not_visible), p.waiting_since == null ? "–" : seconds(s.now - p.waiting_since)]));
}
function drawCommits(s, commits) {
  fill("commits", "Commits by this worker: the newest first", ["ended", "outcome", "commit", "~with the wait", "time of each step", "~tables", "~failed", "records",
    "~row mutations", "~no answer"], !commits.length ? [["none", "none by this worker yet"]] : commits.map(c => [c.commit_id,
    ago(c.ended_at, s.now), {text: c.outcome, kind: c.outcome === "partial" ? "warn" : ""}, seconds(c.commit_seconds), seconds(c.seconds),
    steps(c.tables), number(c.tables.length), {text: number(c.failed), kind: c.failed ? "bad" : ""}, number(c.records), changed(c.tables),
    {text: c.unanswered.slice(0, 3).join(", "), kind: "long"}]));
}
function drawMutations(tables) {
  const changing = tables.filter(t => t.mutations);
  $("changes").hidden = !changing.length;
  fill("mutations", "Row mutations by this worker", ["table", "keys", "rows superseded", "~deletes without a row", "~positions written", "~files looked into",
    "~from the cache", "~key cache"], changing.slice(0, SHOWN).map(t => {
    const m = t.mutations;
    return [t.table, t.table, ...[m.keys, m.superseded, m.unmatched, m.positions, m.files, m.cached].map(number), bytes(t.key_cache_bytes)];
  }));
}
function drawRecords(s) {
  const rows = [["read", number(s.read)], ["written", number(s.written)]];
  for (const [name, counts] of [["changes ", s.replaced], ["filtered: ", s.filtered], ["dead letters: ", s.dead_letters], ["lost: ", s.lost], ["publications: ", s.publications]])
    for (const [key, n] of Object.entries(counts)) rows.push([name + key, number(n)]);
  if (s.undecodable) rows.push(["undecodable entries of the control log", number(s.undecodable)]);
  fill("records", "Records since this worker began", ["since this worker began", "count"], rows.map(([name, n]) => [name, name, n]));
  sync($("letters"), s.dead_letter_samples.map(text => ({key: text})), "li", (item, {key}) => put(item, key));
}
function drawEvents(s, events) {
  fill("events", "Events of this worker: the newest first", ["when", "what"], events.map(e => [String(e.number), ago(e.at, s.now),
    {text: e.text, kind: "long" + (e.level === "warning" ? " warn" : "")}]));
}

// What the part of the address after # names: a table, a partition, or nothing.
function opened() {
  const [kind, ...encoded] = location.hash.slice(1).split("/");
  if (encoded.length !== {table: 1, partition: 2}[kind]) return null;
  try {
    return [kind, encoded.map(decodeURIComponent)];
  } catch (error) {  // somebody has mistyped the address
    return null;
  }
}
function maintained(m, now) {
  if (!m) return "none by this worker";
  const last = m.last ? `${m.last.text} (${m.last.task}, ${ago(m.last.ended_at, now)})` : "nothing was due";
  const due = m.due ? `; due for ${seconds(Math.max(0, now - m.due.since))}: ${m.due.tasks.join(", ")}` + (m.due.files ? `, ${number(m.due.files)} files, ${bytes(m.due.bytes)}` : "") : "";
  return last + due + (m.running_since == null ? "" : `; a task runs for ${seconds(now - m.running_since)}`);
}
async function drawDetail(s) {
  const open = opened();
  if (!open) { $("detail").hidden = true; return; }
  const [kind, names] = open, of = await get(`api/${kind}s/` + names.map(encodeURIComponent).join("/")).catch(() => null);
  const isTable = kind === "table", name = names.join("-");
  put($("detailhead"), (isTable ? "Table " : "Partition ") + name + (of ? "" : ": this worker does not know it"));
  const t = of?.[kind], facts = !of ? [] : isTable ? [
    ["trouble", t.trouble ?? "none"], ["last commit", ago(t.committed_at, s.now)], ["valid through", ago(t.valid_through, s.now)],
    ["snapshot", t.snapshot_id || "–"], ["files that wait", number(t.buffered_files)],
    ["the oldest announced", ago(t.buffered_since, s.now)], ["failures in a row", number(t.failures)],
    ["files", number(t.files)], ["size", bytes(t.bytes)], ["maintenance", maintained(t.maintenance, s.now)],
  ] : [["position", number(t.position)], ["end", number(t.end)], ["committed up to", number(t.committed)], ["to read", number(t.source_lag)],
    ["not visible", number(t.not_visible)], ["the oldest waits for", t.waiting_since == null ? "–" : seconds(s.now - t.waiting_since)]];
  sync($("detailfacts"), facts.flatMap(([fact, value]) => [{key: fact, text: fact, tag: "dt"}, {key: "=" + fact, text: value}]), "dd", (node, {text}) => put(node, text));
  const charts = !of ? [] : isTable ? [["age of the data, last hour", of.history.age, ageTitle], ["commit time, last hour", of.history.commit, commitTitle]]
    : [["records to read, last hour", of.history.lag, recordsTitle], ["records not visible, last hour", of.history.waiting, recordsTitle]];
  sync($("detailcharts"), charts.map(([key, values, title]) => ({key, values, title})), "figure", (figure, {key, values, title}) => {
    const drawn = chart(values, title), most = (values || []).filter(v => v != null);
    change(figure, key + (drawn.sign ?? drawn.text), () => [make("figcaption", key + (most.length > 1 ? ": " + title(Math.max(...most)) : ": no samples yet"), "soft"),
      drawn.build ? drawn.build() : make("span", drawn.text)]);
  });
  $("detailcommits").hidden = !of || !isTable;
  fill("detailcommits", "Commits of the table by this worker: the newest first", ["ended", "outcome", "took", "files", "records", "why"], (of?.commits ?? []).map(c => [c.commit_id,
    ago(c.ended_at, s.now), {text: c.outcome, kind: c.outcome === "failed" ? "bad" : ""}, seconds(c.seconds), number(c.files), number(c.records),
    {text: c.reason ?? "", kind: "long"}]));
  const isNew = $("detail").hidden || $("detail").dataset.of !== location.hash;
  $("detail").hidden = false;
  $("detail").dataset.of = location.hash;
  if (isNew) $("detail").focus();
}
async function drawConfig(s) {
  if (!$("settings").open) return;
  const config = await get(`connectors/${encodeURIComponent(s.sink)}/config`);
  fill("config", "Configuration: *** stands for what may be a secret", ["key", "value"],
    Object.entries(config).sort().map(([key, value]) => [key, key, {text: value, kind: "long"}]));
}
const matches = (text, wanted) => text.toLowerCase().includes(wanted.trim().toLowerCase());
let answered = null, timer = 0;
async function draw() {
  clearTimeout(timer);
  try {
    const [s, tables, partitions, commits, events] = await Promise.all(
      ["status", "tables", "partitions", "commits", "events"].map(p => get("api/" + p)));
    const shown = tables.filter(t => matches(t.table, $("filter").value)).slice(0, SHOWN);
    const lagging = partitions.filter(p => matches(p.topic + "-" + p.partition, $("find").value)).slice(0, SHOWN);
    const h = await samples(shown, lagging);
    drawHead(s);
    drawTables(s, tables, shown, h);
    drawPartitions(s, partitions, lagging, h);
    drawCommits(s, commits);
    drawMutations(tables);
    drawRecords(s);
    drawEvents(s, events);
    await drawDetail(s);
    await drawConfig(s);
    answered = Date.now();
    document.body.classList.remove("stale");
    document.body.dataset.drawn = "yes";
  } catch (error) {
    put($("health"), "no answer");
    put($("state"), answered == null ? "" : "what stands here is from " + seconds((Date.now() - answered) / 1000) + " ago");
    put($("said"), "no answer");
    $("health").className = "badge bad";
    document.body.classList.add("stale");
  }
  clearTimeout(timer);
  timer = setTimeout(draw, 2000);
}
let opener = null;
function closeDetail() {
  if (!opened()) return;
  history.pushState(null, "", location.pathname + location.search);
  $("detail").hidden = true;
  if (opener?.isConnected) opener.focus();
}
document.addEventListener("click", event => {
  const link = event.target.closest?.("a");
  if (link?.hash.startsWith("#table/") || link?.hash.startsWith("#partition/")) opener = link;
});
$("close").addEventListener("click", event => { event.preventDefault(); closeDetail(); });
document.addEventListener("keydown", event => {
  const typing = event.target instanceof HTMLInputElement;
  if (event.key === "Escape" && !typing) closeDetail();
  if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey && !event.altKey) { event.preventDefault(); $("filter").focus(); }
});
window.addEventListener("hashchange", draw);
for (const id of ["filter", "find"]) $(id).addEventListener("input", draw);
$("settings").addEventListener("toggle", draw);
draw();
