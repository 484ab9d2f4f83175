// Which line allocates what grows, and who keeps it: in words, with the lines as they were read from the job, and the
// stack folded away.
function tellCulprit(it, box) {
  box.append(make("p", it.sentence + ".", "culprit"), make("p", "→ " + it.advice, "advice"));
  const is = (one, other) => Boolean(other) && one.line === other.line && one.file === other.file;
  const marked = line => is(line, it.leading) ? "▸ " : is(line, it) ? "· " : "  ";
  const runs = [];
  for (const line of it.source) {
    const last = runs.at(-1), before = last && last.at(-1);
    if (before && before.file === line.file && before.line + 1 === line.line) last.push(line); else runs.push([line]);
  }
  for (const lines of runs) {
    const has = spot => lines.some(line => is(line, spot)), name = spot => spot.file.split("/").pop() + (/^In \[.*\]$/.test(spot.file) ? ", line " : ":") + spot.line;
    const label = [has(it) ? "allocated at " + name(it) : null, has(it.kept) ? "kept at " + name(it.kept) : null].filter(known).join(", ");
    if (runs.length > 1 && label) box.append(make("p", label + ":", "faint"));
    const excerpt = make("pre", null, "source");
    lines.forEach(line => excerpt.append(make("span", marked(line) + String(line.line).padStart(5) + "  " + (line.text || "") + "\u00a0", is(line, it.leading) ? "marked" : null), "\n"));
    box.append(excerpt);
  }
  const stack = make("details"), list = make("ol");
  stack.append(make("summary", "where it is allocated: " + call(it)));
  it.frames.forEach(frame => list.append(make("li", call(frame), library(frame) ? "faint" : null)));
  if (it.frames.length) stack.append(list);
  box.append(stack);
}
const library = frame => /\/(site|dist)-packages\/|\/lib(64)?\/python[0-9]|^<frozen/.test(frame.file);
const call = it => it.file + ":" + it.line + (it.function ? " in " + it.function + (it.function.startsWith("<") ? "" : "()") : "");
