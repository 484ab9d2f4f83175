// What stands on the page beside the timeline, and what keys, pointer and buttons do.
function steps() {
  if (run.attached_step > 1) return "up to step " + run.steps + ", attached at step " + run.attached_step;
  return run.steps + (run.steps === 1 ? " step" : " steps") + (known(run.attached_step) ? " since attachment" : "");
}
document.title = "gpuwatch: " + plain(data.title);
at("title").textContent = plain(data.title);
at("title").className = run.verdict;
const began = known(data.started_unix_us) ? new Date(data.started_unix_us / 1000).toISOString().replace("T", " ").slice(0, 19) + " UTC, " : "";
at("about").textContent = began + duration(data.to_us - data.from_us) + ", " + (known(run.steps) ? steps() + ", " : "") + run.processes.length + (run.processes.length === 1 ? " probed process, gpuwatch " : " probed processes, gpuwatch ") + run.gpuwatch
  + (run.end_recorded ? "" : "; seen " + (known(run.seen_to_step) ? "up to step " + run.seen_to_step + " " : "") + "of a run whose end is not recorded");
const argv = run.processes.map(it => it.argv).find(known);
at("command").textContent = argv ? plain(argv.join(" ")) : "";

function tellFindings() {
  // What was hit are findings, which stand below with more words.
  const said = run.doubts.map(it => "not judged: " + it).concat(run.notes.map(it => "note: " + it));
  if (said.length) { const list = make("ul"); said.forEach(it => list.append(make("li", it))); at("findings").append(list); }
  for (const it of findings) {
    const severity = it.standing === "allowed" ? "info" : it.severity;
    const box = make("div", null, "finding " + severity), words = it.severity + (it.standing === "usual" ? "" : ", " + it.standing) + ": ";
    box.append(make("strong", words + title(it), severity), make("span", "  " + place(it), "faint"));
    if (it.sentence) box.append(make("p", it.sentence));
    // What is to be done stands with what it follows from.
    if (it.follows) box.append(make("p", it.follows.words));
    else box.append(make("p", (data.causes[it.cause] || it.cause) + (it.culprit ? "." : ". " + it.advice)));
    if (it.culprit && !it.follows) tellCulprit(it.culprit, box);
    // What ran out of memory has a section of its own.
    const told = new Set(it.kind === "oom" ? data.ooms.flatMap(oom => oom.account) : []);
    for (const line of it.follows ? [] : it.account.filter(line => !told.has(line))) box.append(make("p", line));
    if (it.replay) for (const line of it.replay.words) box.append(make("p", line));
    let when = "since " + it.since + ", noticed at " + unit(it) + " " + it.first_alert_step;
    if (known(it.resolved_step)) when += ", over by " + unit(it) + " " + it.resolved_step;
    else if (it.full_in_steps > 0) when += "; at that pace the device would be full after " + it.full_in_steps + " " + unit(it) + (it.full_in_steps === 1 ? "" : "s") + " more";
    box.append(make("p", when + " (" + it.cause + ")", "faint"));
    const on = series.find(of => of.id === it.device_id) || (known(it.device_id) ? null : series[0]);
    if (on) { const button = make("button", "show on the timeline"); button.type = "button"; button.addEventListener("click", () => show(it, on)); box.append(button); }
    at("findings").append(box);
  }
  if (!findings.length) at("findings").append(make("p", "No findings."));
}
function show(it, on) {
  choose(on);
  const rows = shown();
  if (rows.length > 1) { const { from, to } = span(it, rows), [first, last] = whole(rows), room = Math.max(to - from, (last - first) / 50) / 4; zoom(from - room, to + room); }
  at("chart").scrollIntoView({ block: "center" });
  at("chart").focus();
}

function tellOoms() {
  at("ooms-section").hidden = !data.ooms.length;
  for (const it of data.ooms) {
    const where = [place(it), known(it.step) ? "step " + it.step : null].filter(known).join(", ");
    const box = make("div", null, "finding critical"), list = make("ul");
    it.account.forEach(line => list.append(make("li", line)));
    box.append(make("strong", where, "critical"), list);
    if (it.blocks.length) {
      const table = make("table"), head = row(make("th", "size", "n"), make("th", "live blocks", "n"), make("th", "together", "n")), more = make("details");
      head.querySelectorAll("th").forEach(it => it.setAttribute("scope", "col"));
      table.append(head);
      it.blocks.forEach(([each, count]) => table.append(row(number(bytes(each)), number(count), number(bytes(each * count)))));
      if (it.other_blocks) table.append(row(number("other"), number(it.other_blocks), number(bytes(it.other_bytes))));
      more.append(make("summary", "Live blocks by size"), table);
      box.append(more);
    }
    if (known(it.message)) {
      const words = make("details");
      words.append(make("summary", "The framework's own words"), make("p", it.message));
      box.append(words);
    }
    at("ooms").append(box);
  }
}

function tellGrowth() {
  at("growth-section").hidden = !data.growth.length;
  for (const it of data.growth) {
    const found = findings[it.finding], figure = make("figure", null, "panel"), svg = shape("svg", { class: "plot", role: "img" });
    const words = title(found) + " (" + place(found) + ")";
    figure.append(make("figcaption", words), svg);
    at("growth").append(figure);
    const last = it.points[it.points.length - 1], fit = it.line ? "; fitted: " + bytes(it.line[0][1]) + " at " + unit(found) + " " + it.line[0][0] + ", " + bytes(it.line[1][1]) + " at " + unit(found) + " " + it.line[1][0] : "";
    svg.setAttribute("aria-label", plain(words + ": from " + bytes(it.points[0][1]) + " at " + unit(found) + " " + it.points[0][0] + " to " + bytes(last[2]) + " at " + unit(found) + " " + last[0] + fit));
    svg.redraw = () => drawGrowth(svg, it, found);
    svg.redraw();
  }
}
function drawGrowth(svg, growth, found) {
  const first = growth.points[0][0], last = growth.points[growth.points.length - 1][0];
  const values = growth.points.flatMap(([, low, high]) => [low, high]).concat((growth.line || []).map(([, y]) => y));
  const low = Math.min(...values), high = Math.max(...values), pad = Math.max(1, (high - low) * 0.06), from = Math.max(0, low - pad);
  const it = frame(svg, first, Math.max(last, first + 1), high + pad - from, 8);
  const Y = value => it.Y(value - from), point = (x, y) => it.X(x).toFixed(1) + "," + Y(y).toFixed(1);
  grid(it, [0, (high - from) / 2, high - from], value => bytes(value + from));
  along(it, value => unit(found) + " " + Math.round(value));
  const edge = growth.points.map(([x, , high]) => point(x, high)).concat(growth.points.slice().reverse().map(([x, low]) => point(x, low)));
  svg.append(shape("polygon", { points: edge.join(" "), fill: "var(--accent)", stroke: "var(--accent)", "stroke-width": 1.5 }));
  if (growth.line) svg.append(shape("polyline", { points: growth.line.map(([x, y]) => point(x, y)).join(" "), fill: "none", stroke: "var(--fit)", "stroke-width": 2, "stroke-dasharray": "7 4", "data-fit": "" }));
}

function tellRest() {
  const moments = data.moments.slice().sort((a, b) => a.at_us - b.at_us);
  for (const it of moments) at("moments").append(row(number(duration(it.at_us - data.from_us)), make("td", (it.kind === "trouble" ? "! " : "") + it.text)));
  if (!moments.length) at("moments").append(row(number(), make("td", "no marks and no troubles")));
  run.processes.forEach((it, place) => {
    const made = data.environment.find(made => known(it.rank) && made.rank === it.rank) || data.environment[place] || {};
    at("processes").append(row(number(it.rank), number(it.pid), make("td", it.host || "–"), number(it.steps),
      make("td", [made.framework, made.framework_version].filter(known).join(" ") || "–"), make("td", [made.backend, made.allocator_conf, made.scheduler].filter(known).join(", ") || "–")));
  });
  for (const it of run.devices) {
    at("peaks").append(row(make("td", gpu(it.id) + (it.name ? " (" + it.name + ")" : "")), number(bytes(it.total)), number(bytes(it.peak.allocated)), number(bytes(it.peak.reserved)), number(bytes(it.peak.used)), number(percent(it.stuck))));
  }
  at("driver").textContent = known(data.driver) ? "driver " + plain(data.driver) : "";
}

function swatch(gap) { const it = make("i", null, "swatch"); it.style.background = colour(gap.name); return it; }

// Where the memory is at the cursor; without one, where it ran out, or where the most was allocated.
function tellLadder(rows) {
  const ranOut = rows.filter(row => row.out_of_memory).pop(), most = () => rows.reduce((best, row) => (row.allocated || 0) > (best.allocated || 0) ? row : best, rows[0]);
  const shownRow = rows[cursor] || ranOut || most(), where = rows[cursor] ? "at the cursor" : ranOut ? "when it ran out" : "with the most allocated";
  at("ladder-heading").textContent = "Where the memory is " + where + " (" + axisWord(xOf(shownRow)) + ")";
  // The driver is asked once a second: what only it knows is that old.
  const age = known(shownRow.driver_at_us) ? shownRow.at_us - shownRow.driver_at_us : 0;
  at("ladder-age").textContent = age >= 5e4 ? "What other processes use, and what lies outside of the allocators, is from " + (age / 1e6).toFixed(age < 1e6 ? 2 : 1) + " s before." : "";
  at("key").replaceChildren(...device.stacked.map(gap => { const entry = make("li"); entry.append(swatch(gap), gap.name); return entry; }));
  at("ladder").tBodies[0].replaceChildren(...device.gaps.slice().reverse().map(gap => {
    const name = make("th"), value = shownRow["gap " + gap.name];
    name.scope = "row";
    name.append(swatch(gap), gap.name);
    return row(name, number(bytes(value)), number(known(value) && device.total ? percent(value / device.total) : "–"), make("td", gap.cause), make("td", gap.remedy || "–"));
  }));
}
function tellCursor(rows) {
  const it = rows[cursor], words = !it ? "Point at a place of the run, or move the cursor there, to see its figures here." : [known(it.step) ? "step " + it.step : null, duration(it.at_us - data.from_us), "allocated " + bytes(it.allocated), "reserved " + bytes(it.reserved), "stuck " + bytes(it.stuck), "used on the device " + bytes(it.used)].filter(known).join("   ");
  at("cursor").textContent = words;
  const svg = at("chart");
  svg.setAttribute("aria-valuemax", rows.length - 1);
  svg.setAttribute("aria-valuenow", cursor === null ? rows.length - 1 : cursor);
  svg.setAttribute("aria-valuetext", it ? words : "no place chosen; the whole run has " + rows.length + " readings");
}
function tellRows(rows) {
  if (!at("rows").open || rows.length < 2) return;
  const [from, to] = view || whole(rows), inside = rows.filter(row => xOf(row) >= from && xOf(row) <= to), every = Math.max(1, Math.ceil(inside.length / 200));
  const columns = ["allocated", "reserved", "stuck", "used"], heads = ["step", "after"].concat(columns, device.gaps.map(gap => "part: " + gap.name));
  const head = row(...heads.map(name => { const it = make("th", name, "n"); it.scope = "col"; return it; }));
  at("rows").querySelector("thead").replaceChildren(head);
  at("rows").querySelector("tbody").replaceChildren(...inside.filter((_, place) => place % every === 0).map(it =>
    row(number(it.step), number(duration(it.at_us - data.from_us)), ...columns.map(name => number(bytes(it[name]))), ...device.gaps.map(gap => number(bytes(it["gap " + gap.name]))))));
}
function tell() {
  const rows = shown();
  if (!rows.length) return;
  tellLadder(rows); tellCursor(rows); tellRows(rows);
}

function move(to) { const rows = shown(); cursor = Math.max(0, Math.min(rows.length - 1, to)); draw(); tell(); }
function zoom(from, to) {
  const rows = shown();
  if (rows.length < 2) return;
  const [first, last] = whole(rows), least = (last - first) / rows.length * 2;
  if (to - from < least) { const middle = (from + to) / 2; from = middle - least / 2; to = middle + least / 2; }
  const wide = Math.min(to - from, last - first);
  from = Math.max(first, Math.min(from, last - wide));
  view = wide >= last - first ? null : [from, from + wide];
  draw(); tell();
}
function scale(factor, around) {
  const rows = shown();
  if (rows.length < 2) return;
  const [from, to] = view || whole(rows), middle = known(around) ? around : cursor !== null && rows[cursor] && xOf(rows[cursor]) >= from && xOf(rows[cursor]) <= to ? xOf(rows[cursor]) : (from + to) / 2;
  zoom(middle - (middle - from) * factor, middle + (to - middle) * factor);
}
function pan(share) { const [from, to] = view || whole(shown()); zoom(from + (to - from) * share, to + (to - from) * share); }
function reset() { view = null; cursor = null; draw(); tell(); }
function choose(it) {
  if (it !== device) { device = it; view = null; cursor = null; }
  for (const button of at("devices").children) button.setAttribute("aria-pressed", button.device === device);
  draw(); tell();
}
function keys(event) {
  const last = shown().length - 1, far = event.shiftKey ? 10 : 1;
  const actions = { ArrowLeft: () => move((cursor === null ? last + 1 : cursor) - far), ArrowRight: () => move((cursor === null ? -1 : cursor) + far), Home: () => move(0), End: () => move(last),
    "+": () => scale(0.5), "=": () => scale(0.5), "-": () => scale(2), PageUp: () => pan(-0.5), PageDown: () => pan(0.5), Escape: reset, 0: reset };
  const action = actions[event.key];
  if (!action || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  action();
}
function listen(svg) {
  const pixel = event => event.clientX - svg.getBoundingClientRect().left;
  svg.addEventListener("pointerdown", event => { if (event.button === 0) { drag = { from: pixel(event), to: pixel(event) }; svg.setPointerCapture(event.pointerId); } });
  svg.addEventListener("pointermove", event => {
    if (drag) { drag.to = pixel(event); draw(); return; }
    if (!svg.valueAt) return;
    const value = svg.valueAt(pixel(event)), rows = shown();
    move(rows.reduce((best, row, place) => Math.abs(xOf(row) - value) < Math.abs(xOf(rows[best]) - value) ? place : best, 0));
  });
  svg.addEventListener("pointerup", () => {
    const ended = drag;
    drag = null;
    if (ended && Math.abs(ended.to - ended.from) > 8) zoom(svg.valueAt(Math.min(ended.from, ended.to)), svg.valueAt(Math.max(ended.from, ended.to))); else draw();
  });
  svg.addEventListener("pointercancel", () => { drag = null; draw(); });
  svg.addEventListener("wheel", event => {
    if (!svg.valueAt || !(event.ctrlKey || event.metaKey || document.activeElement === at("chart"))) return;
    event.preventDefault();
    scale(Math.exp(Math.max(-1, Math.min(1, event.deltaY * 0.003))), svg.valueAt(pixel(event)));
  }, { passive: false });
}
function thumbnail(it) {
  const button = make("button"), svg = shape("svg", { viewBox: "0 0 100 20", preserveAspectRatio: "none", "aria-hidden": "true" });
  const held = row => row.allocated || row.used || 0, least = 0.9 * Math.min(...it.rows.map(held)), most = 1 + Math.max(...it.rows.map(held));
  const every = Math.max(1, Math.floor(it.rows.length / 100)), last = it.rows.length - 1;
  const line = it.rows.filter((_, place) => place % every === 0 || place === last).map((row, place, all) => (place / (all.length - 1) * 100).toFixed(1) + "," + (20 - (held(row) - least) / (most - least) * 20).toFixed(1));
  svg.append(shape("polygon", { points: "0,20 " + line.join(" ") + " 100,20", fill: colour("wanted") }));
  button.type = "button"; button.device = it;
  const found = findings.filter(found => found.device_id === it.id && found.standing !== "allowed"), words = make("span", it.name);
  if (found.length) words.append(" ", make("strong", found.length === 1 ? "1 finding" : found.length + " findings", found[0].severity));
  button.append(words, svg);
  button.addEventListener("click", () => choose(it));
  return button;
}

tellFindings(); tellOoms(); tellRest();
if (series.length) {
  at("chart-section").hidden = false;
  if (series.length > 1) { at("devices").hidden = false; at("devices").append(...series.map(thumbnail)); }
  if (!series[0].rows.some(row => known(row.step))) at("axis").value = "time";
  at("axis").addEventListener("change", reset);
  at("scale").addEventListener("change", draw);
  at("in").addEventListener("click", () => scale(0.5));
  at("out").addEventListener("click", () => scale(2));
  at("reset").addEventListener("click", reset);
  at("chart").addEventListener("keydown", keys);
  at("rows").addEventListener("toggle", tell);
  listen(at("chart")); listen(at("fragmentation")); listen(at("steps"));
  choose(device);
}
tellGrowth();
addEventListener("resize", () => { if (series.length) draw(); document.querySelectorAll("svg.plot").forEach(it => it.redraw()); });
