// Which line allocates what grows, and who keeps it: in words, with the lines as they were read from the job, and the
// stack folded away.
function tellCulprit(it, box) {
  box.append(make("p", it.sentence + ".", "culprit"), make("p", "→ " + it.advice, "advice"));
  const kept = it.kept || it, is = (one, other) => one.line === other.line && one.file === other.file;
  if (it.source.length) {
    const lines = make("pre", null, "source"), marked = line => is(line, kept) ? "▸ " : is(line, it) ? "· " : "  ";
    it.source.forEach(line => lines.append(make("span", marked(line) + String(line.line).padStart(5) + "  " + (line.text || "") + "\u00a0", is(line, kept) ? "marked" : null), "\n"));
    box.append(lines);
  }
  const stack = make("details"), list = make("ol");
  stack.append(make("summary", "where it is allocated: " + call(it)));
  it.frames.forEach(frame => list.append(make("li", call(frame), library(frame) ? "faint" : null)));
  if (it.frames.length) stack.append(list);
  box.append(stack);
}
const library = frame => /\/(site|dist)-packages\/|\/lib(64)?\/python[0-9]|^<frozen/.test(frame.file);
const call = it => it.file + ":" + it.line + (it.function ? " in " + it.function + (it.function.startsWith("<") ? "" : "()") : "");
