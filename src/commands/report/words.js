// Numbers and text in words. Whatever came from a run becomes text, never markup, and what would not be seen, or would
// turn the text around it, is written out.
const data = JSON.parse(document.getElementById("data").textContent);
const run = data.run, findings = run.findings || [];
const known = it => it !== null && it !== undefined;
const at = id => document.getElementById(id);
const unseen = /[/* hidden */]/gu;
const plain = text => String(text).replace(unseen, it => "\\u{" + it.codePointAt(0).toString(16) + "}");

function make(name, text, kind) {
  const it = document.createElement(name);
  if (known(text)) it.textContent = plain(text);
  if (kind) it.className = kind;
  return it;
}
function shape(name, values, text) {
  const it = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const key in values) it.setAttribute(key, values[key]);
  if (known(text)) it.textContent = plain(text);
  return it;
}
function row(...cells) {
  const it = make("tr");
  for (const cell of cells) it.append(cell instanceof Node ? cell : make("td", known(cell) ? cell : "–"));
  return it;
}
const number = text => make("td", known(text) ? text : "–", "n");

function bytes(value) {
  if (!known(value)) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (Math.abs(value) >= 1023.95 && unit < 4) { value /= 1024; unit += 1; }
  return (unit ? value.toFixed(Math.abs(value) < 100 ? 2 : 1) : Math.round(value)) + " " + units[unit];
}
function duration(us) {
  const s = us / 1e6;
  if (s < 120) return s.toFixed(s < 10 ? 1 : 0) + " s";
  return s < 7200 ? Math.floor(s / 60) + " min" : (s / 3600).toFixed(1) + " h";
}
const brief = us => us < 1e3 ? Math.round(us) + " µs" : us < 1e6 ? Math.round(us / 1e3) + " ms" : us < 1e8 ? (us / 1e6).toFixed(2) + " s" : duration(us);
const percent = share => known(share) && isFinite(share) ? (share > 0 && share < 0.005 ? "<1 %" : Math.round(share * 100) + " %") : "–";

function gpu(id) {
  const it = run.devices.find(it => it.id === id);
  return known(id) ? "GPU " + (it && known(it.index) ? it.index : id) : null;
}
const place = it => [known(it.rank) ? "rank " + it.rank : known(it.pid) ? "pid " + it.pid : null, gpu(it.device_id)].filter(known).join(", ");
const unit = it => it.axis === "seconds" ? "second" : "step";
function rate(it) {
  if (!known(it.bytes_per_step)) return "";
  const evidence = it.evidence || {};
  if (known(evidence.bytes_per_stair))
    return (it.approximate ? "≈" : "") + "+" + bytes(evidence.bytes_per_stair) + " every " + evidence.from_stair_to_stair + (it.axis === "seconds" ? " s" : " steps");
  return (it.approximate ? "≈" : "") + (it.bytes_per_step < 0 ? "-" : "+") + bytes(Math.abs(it.bytes_per_step)) + (it.axis === "seconds" ? "/s" : "/step");
}
const title = it => it.kind + (it.resource ? " of " + data.resources[it.resource] : "") + (rate(it) ? ", " + rate(it) : "");
