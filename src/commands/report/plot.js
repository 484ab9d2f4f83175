// The timeline: the ladder stacked over the run, what was not in use below it, one view and one cursor for both.
const MARGIN = { left: 82, right: 12, bottom: 24 }, LANE = 9, LANES = 5;
const series = data.timeline.map(it => {
  const rows = it.points.map(point => Object.fromEntries(it.columns.map((name, place) => [name, point[place]])));
  const device = run.devices.find(device => device.id === it.device_id) || {};
  const gaps = data.gaps.filter(gap => it.columns.includes("gap " + gap.name));
  return { id: it.device_id, rows, gaps, stacked: gaps.filter(gap => gap.name !== "free"), total: device.total, name: gpu(it.device_id) };
}).filter(it => it.rows.length > 1);
// INSIDE and UNUSED, and the colours of gaps, come from the table of gaps.

// The one that the worst finding is about is shown first.
let device = findings.map(found => series.find(it => it.id === found.device_id)).find(known) || series[0], view = null, cursor = null, drag = null;
const alongTime = () => at("axis").value === "time";
const xOf = row => alongTime() ? (row.at_us - data.from_us) / 1e6 : row.step;
const size = (row, gap) => row["gap " + gap] || 0;
const sum = (row, gaps) => gaps.reduce((sum, gap) => sum + size(row, gap), 0);
const colour = gap => "var(--gap-" + gap.replaceAll(" ", "-") + ")";
const shown = () => device.rows.filter(row => known(xOf(row))).sort((a, b) => xOf(a) - xOf(b) || a.at_us - b.at_us);
const axisWord = value => alongTime() ? duration(value * 1e6) : "step " + Math.round(value);

function whole(rows) { return [xOf(rows[0]), Math.max(xOf(rows[rows.length - 1]), xOf(rows[0]) + 1e-9)]; }
// A step's place on the axis that is shown, and a moment's.
function xOfStep(step, rows) {
  if (!alongTime()) return step;
  const near = rows.find(row => row.step >= step);
  return near ? xOf(near) : null;
}
function xOfMoment(us, rows) {
  if (alongTime()) return (us - data.from_us) / 1e6;
  const near = rows.find(row => row.at_us >= us) || rows[rows.length - 1];
  return near ? near.step : null;
}
// From where to where a finding lasts, and where it was told.
function span(it, rows) {
  const told = xOfMoment(it.first_alert_us, rows), last = whole(rows)[1];
  const away = (it.first_alert_step - it.since_step) * 1e6;
  const from = it.axis === "seconds" ? xOfMoment(it.first_alert_us - away, rows) : xOfStep(it.since_step, rows);
  const to = known(it.resolved_us) ? xOfMoment(it.resolved_us, rows) : it.kind === "oom" ? told : last;
  return { from: known(from) ? Math.min(from, told) : told, told, to: Math.max(to, told) };
}
function frame(svg, from, to, most, top) {
  svg.replaceChildren();
  const width = Math.max(200, svg.clientWidth), height = svg.clientHeight;
  svg.setAttribute("viewBox", "0 0 " + width + " " + height);
  const base = height - MARGIN.bottom, inner = width - MARGIN.left - MARGIN.right;
  return { svg, width, height, base, top, from, to,
    X: value => MARGIN.left + (value - from) / (to - from) * inner,
    Y: value => base - value / most * (base - top),
    valueAt: pixel => from + (pixel - MARGIN.left) / inner * (to - from) };
}
function grid(it, marks, word) {
  for (const value of marks) {
    const y = it.Y(value);
    it.svg.append(shape("line", { x1: MARGIN.left, x2: it.width - MARGIN.right, y1: y, y2: y, stroke: "var(--line)" }));
    it.svg.append(shape("text", { x: MARGIN.left - 8, y: y + 4, "text-anchor": "end" }, word(value)));
  }
}
function along(it, word) {
  const parts = it.width < 600 ? 2 : 4;
  for (let n = 0; n <= parts; n += 1) {
    const value = it.from + (it.to - it.from) * n / parts;
    it.svg.append(shape("text", { x: it.X(value), y: it.height - 7, "text-anchor": n === 0 ? "start" : n === parts ? "end" : "middle" }, word(value)));
  }
}
function clipped(it, name) {
  const clip = shape("clipPath", { id: name });
  clip.append(shape("rect", { x: MARGIN.left, y: 0, width: it.width - MARGIN.left - MARGIN.right, height: it.base }));
  const plot = shape("g", { "clip-path": "url(#" + name + ")" });
  it.svg.append(clip, plot);
  return plot;
}
function band(it, rows, low, high, values) {
  const edge = (of, rows) => rows.map(row => it.X(xOf(row)).toFixed(1) + "," + it.Y(of(row)).toFixed(1)).join(" ");
  return shape("polygon", { points: edge(high, rows) + " " + edge(low, rows.slice().reverse()), stroke: "var(--panel)", "stroke-width": rows.length < 300 ? 0.5 : 0, ...values });
}
function nice(most, parts) {
  const raw = most / parts, unit = 2 ** Math.floor(Math.log2(raw)), step = unit * (raw / unit > 1.5 ? 2 : 1);
  const marks = [];
  for (let value = 0; value <= most; value += step) marks.push(value);
  return marks;
}

function drawLadder(rows, inside, from, to) {
  const top = device.stacked.map(gap => gap.name), heard = inside.map(row => sum(row, top)).concat(inside.map(row => row.used || 0));
  const isWhole = at("scale").value === "total" && known(device.total);
  const most = isWhole ? device.total : 1.06 * Math.max(1, ...heard);
  const lanes = Math.min(LANES, findings.filter(isHere).length);
  const it = frame(at("chart"), from, to, most, 12 + lanes * LANE);
  grid(it, nice(most, 4), bytes);
  along(it, axisWord);
  const plot = clipped(it, "chart-clip");
  let below = [];
  for (const gap of device.stacked) {
    const under = below.slice();
    below.push(gap.name);
    const over = below.slice();
    const area = band(it, inside, row => sum(row, under), row => sum(row, over), { fill: colour(gap.name), "data-gap": gap.name });
    area.append(shape("title", {}, gap.name + ": " + gap.cause));
    plot.append(area);
  }
  drawFits(it, plot, rows);
  drawMoments(it, plot, rows);
  drawAlerts(it, plot, rows);
  return { it, plot };
}
const isHere = it => !known(it.device_id) || it.device_id === device.id;
// With one process on a device, what it allocated is where the line was fitted.
function drawFits(it, plot, rows) {
  if (alongTime() || run.processes.length > series.length) return;
  for (const growth of data.growth) {
    const found = findings[growth.finding];
    if (!growth.line || found.resource !== "allocated" || found.axis !== "steps" || found.device_id !== device.id) continue;
    const [[x1, y1], [x2, y2]] = growth.line;
    plot.append(shape("line", { x1: it.X(x1), y1: it.Y(y1), x2: it.X(x2), y2: it.Y(y2), stroke: "var(--fit)", "stroke-width": 2, "stroke-dasharray": "7 4", "data-fit": "" }));
  }
}
// Many marks stand as ticks on the axis: as lines they would hide what they mark.
function drawMoments(it, plot, rows) {
  const isCrowded = data.moments.filter(moment => { const x = xOfMoment(moment.at_us, rows); return x >= it.from && x <= it.to; }).length > 40;
  for (const moment of data.moments) {
    const x = xOfMoment(moment.at_us, rows), isTrouble = moment.kind === "trouble";
    if (!known(x)) continue;
    const line = shape("line", { x1: it.X(x), x2: it.X(x), y1: isCrowded && !isTrouble ? it.base - 7 : it.top, y2: it.base, stroke: isTrouble ? "var(--critical)" : "var(--faint)", "stroke-width": isTrouble ? 2 : 1, "stroke-dasharray": isTrouble || isCrowded ? "none" : "2 4" });
    line.append(shape("title", {}, moment.text));
    plot.append(line);
  }
}
function drawAlerts(it, plot, rows) {
  const ends = [];
  findings.forEach((found, number) => {
    if (!isHere(found)) return;
    const { from, told, to } = span(found, rows);
    let lane = ends.findIndex(end => end < from);
    if (lane < 0) lane = Math.min(ends.length, LANES - 1);
    ends[lane] = to;
    const y = 4 + lane * LANE, x = it.X(from), severity = found.standing === "allowed" ? "info" : found.severity;
    const mark = shape("g", { "data-alert": number });
    mark.append(shape("rect", { x, y: y + 1.5, width: Math.max(2, it.X(to) - x), height: 3, fill: "var(--" + severity + ")" }));
    mark.append(shape("circle", { cx: it.X(told), cy: y + 3, r: 3.5, fill: "var(--" + severity + ")" }));
    mark.append(shape("title", {}, found.severity + ": " + title(found) + " (" + place(found) + ")"));
    plot.append(mark);
  });
}
function drawFragmentation(inside, from, to) {
  const share = (row, gaps) => { const held = sum(row, INSIDE); return held ? sum(row, gaps) / held : 0; };
  const most = Math.max(0.1, ...inside.map(row => share(row, UNUSED))) * 1.1;
  const it = frame(at("fragmentation"), from, to, most, 8);
  grid(it, [0, most / 2.2, most / 1.1], percent);
  along(it, axisWord);
  const plot = clipped(it, "fragmentation-clip");
  plot.append(band(it, inside, () => 0, row => share(row, ["stuck"]), { fill: colour("stuck"), "data-gap": "stuck" }));
  plot.append(band(it, inside, row => share(row, ["stuck"]), row => share(row, UNUSED), { fill: colour("releasable"), "data-gap": "unused" }));
  const hasStuck = device.rows.some(row => known(row.stuck)), isExpandable = data.environment.some(it => /expandable_segments:\s*true/i.test(it.allocator_conf || ""));
  at("fragmentation-words").textContent = "Of what the allocator held, at most " + percent(Math.max(...inside.map(row => share(row, UNUSED)))) + " was not in use; " +
    (isExpandable ? "under expandable segments, what of it is stuck cannot be measured." : hasStuck ? "at most " + percent(Math.max(...inside.map(row => share(row, ["stuck"])))) + " was stuck in split segments, which no empty_cache() gives back." : "what of it is stuck is not known.");
  return { it, plot };
}
// How long the steps of each process here take: the mean of each stretch, over the range from the shortest to the longest.
function drawSteps(from, to) {
  const xOfPoint = ([step, us]) => alongTime() ? (us - data.from_us) / 1e6 : step;
  const runs = data.step_time.filter(it => it.device_id === device.id).map(it => it.points.filter(point => xOfPoint(point) >= from && xOfPoint(point) <= to)).filter(it => it.length);
  const means = runs.flat().map(point => point[3]), most = 1.25 * Math.max(1, ...means);
  const it = frame(at("steps"), from, to, most, 8);
  grid(it, [0, most / 2.5, most / 1.25], brief);
  along(it, axisWord);
  const plot = clipped(it, "steps-clip");
  for (const points of runs) {
    const place = (point, us) => it.X(xOfPoint(point)).toFixed(1) + "," + it.Y(Math.min(us, 2 * most)).toFixed(1);
    const edge = points.map(point => place(point, point[5])).concat(points.slice().reverse().map(point => place(point, point[4])));
    plot.append(shape("polygon", { points: edge.join(" "), fill: "var(--accent)", opacity: 0.25 }));
    plot.append(shape("polyline", { points: points.map(point => place(point, point[3])).join(" "), fill: "none", stroke: "var(--accent)", "stroke-width": 1.5, "data-steps": "" }));
  }
  const longest = Math.max(0, ...runs.flat().map(point => point[5]));
  at("steps-words").textContent = (runs.length ? "A step took " + brief(Math.min(...means)) + " to " + brief(Math.max(...means)) + " on average over a stretch, and at most " + brief(longest) + ". " : "No steps here. ") +
    "It is host time from one step's end to the next; gpuwatch does not synchronise the device.";
  return { it, plot };
}
function draw() {
  const rows = shown();
  if (rows.length < 2) {
    for (const svg of [at("chart"), at("fragmentation"), at("steps")]) svg.replaceChildren(shape("text", { x: 10, y: 20 }, "no steps here: choose time"));
    return;
  }
  const [from, to] = view || whole(rows);
  const inside = rows.filter((row, place) => (xOf(row) >= from || (rows[place + 1] && xOf(rows[place + 1]) >= from)) && (xOf(row) <= to || (rows[place - 1] && xOf(rows[place - 1]) <= to)));
  for (const { it, plot } of [drawLadder(rows, inside, from, to), drawFragmentation(inside, from, to), drawSteps(from, to)]) {
    if (cursor !== null && rows[cursor]) plot.append(shape("line", { x1: it.X(xOf(rows[cursor])), x2: it.X(xOf(rows[cursor])), y1: 0, y2: it.base, stroke: "var(--ink)", "data-cursor": "" }));
    if (drag) plot.append(shape("rect", { x: Math.min(drag.from, drag.to), width: Math.abs(drag.to - drag.from), y: 0, height: it.base, fill: "var(--ink)", opacity: 0.15 }));
    it.svg.valueAt = it.valueAt;
  }
  at("chart").dataset.view = from + " " + to;
  at("reset").disabled = view === null;
}
