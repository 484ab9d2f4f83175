"""Reads lines of the job's source, and finds the statement that keeps a tensor.

Files are read as they are at that moment, without importing or compiling anything. The keeping statement is searched by
the holder's name, where the allocation's stack and the holder locate it. If that is ambiguous, none is reported.
"""

import math
import os
import re
import stat
import sys

_MOST_BYTES = 1 << 20
_LONG = 200

# Longer lines are not handwritten, and the time to search a line grows faster than its length.
_WIDE = 300

# The most statements to report if it is unknown which of them keeps the tensor.
_CANDIDATES = 3

# The only value that a call stores or a statement assigns; a value that is not a device tensor; one without a graph.
_VALUE = re.compile(
    r"\.\s*(?:append|appendleft|add|put|push)\s*\((?P<put>.*)\)\s*;?\s*$|^[^=]*[^=!<>+\-*/%&|^]=(?!=)(?P<assigned>.*)$"
)
_NO_TENSOR = re.compile(r"""^\s*(?:-?[\d.]+|None|True|False|""|\[\]|\{\})\s*$|\.(?:item|tolist|numpy|cpu)\(\)\s*$""")
_DETACHED = re.compile(r"\.detach\(\)\s*$")

# The first line of a function or class.
_BLOCK = re.compile(r"\s*(?:async\s+def|def|class)\b")

# A line that may have statements that do not always run.
_BRANCH = re.compile(r"\s*(?:if|elif|else|for|while|except|case)\b")

# Lines of one statement, and functions that hand a container on to each other.
_MOST_LINES = 20
_MOST_CALLS = 3

# A value that also gets a name, as in `(k := kept).append(x)`; a call, and an argument with its name.
_WALRUS = re.compile(r"\(\s*\w+\s*:=\s*([\w.]+(?:\[[^\]]*\])?)\s*\)")
_CALL = re.compile(r"(?<!\bdef )(?<!\bclass )(?P<dot>\.\s*)?\b(?P<function>[^\W\d]\w*)\s*\(")
_ARGUMENT = re.compile(r"(?:(?P<keyword>\w+)\s*=(?!=))?\s*(?P<value>.*)")

# Strings and comments. Unrolled, so that a string without an end costs no more than its length.
_STRINGS = re.compile(
    r'''"""[^"\\]*(?:(?:\\.|"(?!""))[^"\\]*)*"""'''
    r"""|'''[^'\\]*(?:(?:\\.|'(?!''))[^'\\]*)*'''"""
    r'''|"[^"\\\n]*(?:\\.[^"\\\n]*)*"'''
    r"""|'[^'\\\n]*(?:\\.[^'\\\n]*)*'"""
    r"|#[^\n]*",
    re.DOTALL,
)

# What sets an attribute by a name that is computed, as in `setattr(net, "slot_%d" % step, x)`.
_SETS = re.compile(r"\b(?:register_buffer|register_parameter|add_module|setattr|__setattr__)\s*\(")

_GROWS = (
    "append|appendleft|add|extend|extendleft|insert|update|setdefault|put|put_nowait|push|register_buffer"
)


def is_newer(file, since):
    """Whether a file was written after this time (Unix seconds): its lines then differ from the running code."""
    try:
        return os.stat(file).st_mtime > since
    except (OSError, ValueError):
        return False


def lines(file, line, around=2, sources=None):
    """Returns `[(number, text)]` of the lines around this one; empty if the file is unreadable or newer."""
    source = (Sources() if sources is None else sources)[file].text
    first = max(line - around, 1)
    return [(at, source[at - 1][:_LONG]) for at in range(first, min(line + around, len(source)) + 1)]


def kept_at(holders, frames, sources=None, has_graph=False, rises=0):
    """Returns the statements that may keep a tensor, as `[{"file", "line", "text"}]`: one if certain, none if unknown.

    `holders` is the path to it (`_holders.Search`), `frames` the stack that allocated it, the likeliest first. The
    search reads the functions of the stack, which ran, the nearest statement at or after the allocation first; then the
    function or class that has the holder, and then the files of both, where only a statement without another like it is
    known to have run. `has_graph`: the tensor was not detached. `rises`: what grows got a block at least so often.
    """
    sources = Sources() if sources is None else sources
    for file in {it["file"] for it in holders if it["file"]}:
        # What has an attribute's object may be in the same file.
        sources[file]
    return _first_kept(holders[_grown(holders, rises) :], frames, sources, has_graph) or (
        _first_kept(holders, frames, sources, has_graph)
    )


def _grown(holders, rises):
    """Returns where the container is that gets ever more objects, each with a tensor: what these do with theirs keeps
    one only."""
    for at, it in enumerate(holders):
        if it["by"] in ("item", "key") and 2 <= rises <= (it["items"] or 0):
            return at
    return 0


def _first_kept(holders, frames, sources, has_graph):
    contained = False
    for holder in holders:
        contained = contained or holder["by"] in ("item", "key")
        if holder["by"] in _CALLS:
            return _called(_CALLS[holder["by"]], frames, sources)
        # Of an attribute within networks, as in `encoder.layers.0.cache`, each part may be what something is put into.
        names = [it for it in reversed((holder["name"] or "").split(".")) if it not in _ITSELF]
        names = [it for it in names if it.replace("*", "0").isidentifier()]
        for name in names if holder["by"] in _NAMED else ():
            found = _kept_by(holder, name, contained, frames, sources, has_graph)
            if found:
                return found
            contained = True
        # A name further out keeps the tensor only if something is put into its value, not if it gets another value.
        contained = contained or holder["by"] in _NAMED
    return []


def _called(call, frames, sources):
    """Finds the one statement that calls a function, or decorates another with it."""
    for frame in frames:
        sources[frame["file"]]
    found = [(it, at) for it in sources.values() for at, code in enumerate(it.code, 1) if call.search(code)]
    return [it.statement_at(at) for it, at in found] if len(found) == 1 else []


def _kept_by(holder, name, contained, frames, sources, has_graph):
    """Finds the statements that store a value under this name."""
    # A default value belongs to one function, whatever variables others have of that name.
    for frame in frames if holder["by"] != "default" else ():
        source = sources[frame["file"]]
        found = source.keeping(holder["by"], name, contained, source.function(frame["function"], frame["line"]))
        if frame["function"] == "<module>":
            # The functions of the file ran only if they are in the stack themselves.
            found = list(filter(source.is_outside, found))
        found = source.likely(found, has_graph)
        if found:
            found.sort(key=lambda it: (it < frame["line"], abs(it - frame["line"])))
            count = 1 if source.follows(frame["line"], found[0]) else _CANDIDATES
            return [source.statement_at(it) for it in found[:count]]
    homes = [sources[holder["file"]]] if holder["file"] else list(sources.values())
    found = [(it, it.keeping(holder["by"], name, contained, it.holder(holder))) for it in homes]
    found = [(it, at) for it, lines in found for at in it.likely(lines, has_graph)]
    if found or holder["by"] in _WITHIN:
        # Of the branches of one function, which one ran is not known; of several functions, not even that they ran.
        is_of_one = len({(it.file, it.around(at)) for it, at in found}) == 1
        return [it.statement_at(at) for it, at in found] if len(found) <= (_CANDIDATES if is_of_one else 1) else []
    whole = [(it, it.keeping(holder["by"], name, contained, (1, len(it.text)))) for it in sources.values()]
    everywhere = [(it, at) for it, found in whole for at in found]
    # Outside of the holder's class, `self.NAME` belongs to another class.
    is_foreign = re.compile(r"\bself\.%s\b" % re.escape(name)).search if holder["by"] != "global" else lambda code: None
    likely = [(it, at) for it, at in everywhere if it.likely([at], has_graph) and not is_foreign(it.code[at - 1])]
    statements = [it.statement_at(at) for it, at in likely]
    return statements if len(statements) == 1 else []


# Variables of a function, which nothing but that function gives another value.
_WITHIN = ("local", "cell", "generator", "default")
_OF_OBJECTS = ("attribute", "slot")
_NAMED = _OF_OBJECTS + ("class", "global") + _WITHIN

# What holds without a name, by the call that hands it over.
_CALLS = {"atexit": re.compile(r"\batexit\s*\.\s*register\b")}

# Variables that only stand for the object of a method.
_ITSELF = ("self", "cls")


class Sources(dict):
    """The files that were read already; of those that are newer than `since` (Unix seconds) nothing."""

    def __init__(self, since=math.inf):
        super().__init__()
        self._since = since

    def __missing__(self, file):
        found = self[file] = _Source(file, self._since)
        return found


class _Source:
    """One file, once as it stands and once without strings and comments."""

    def __init__(self, file, since):
        self.file = file
        self.text = _lines_of(file, since)
        self.code = _STRINGS.sub(_blank, "\n".join(self.text)).split("\n") if self.text else []

    def statement_at(self, line):
        return {"file": self.file, "line": line, "text": self.text[line - 1].strip()[:_LONG]}

    def keeping(self, by, name, contained, span):
        """Lines between these at which the variable or attribute gets more, or another value."""
        if "*" in name:
            return self._setting(name.partition("*")[0], span) if by in _OF_OBJECTS else []
        assigned, replaced = _patterns(by, name)[1], []
        found = self._growing(by, name, span, _MOST_CALLS if contained else 0)
        for line, code in self._lines_with(name, span):
            if line not in found and assigned.match(code):
                value = assigned.sub("", self._statement(line), 1).partition(";")[0]
                # A new list is not a longer one; what is made out of the old one may be.
                if not contained or re.search(r"\b%s\b" % name, value):
                    replaced.append(line)
        return found or replaced if contained else sorted(found + replaced)

    def _setting(self, begin, span):
        """Lines that set attributes whose names begin so; where none says how they begin, the only one that says nothing."""
        calls = [it for it in range(max(span[0], 1), min(span[1], len(self.code)) + 1) if _SETS.search(self.code[it - 1])]
        says = {it: re.findall(r"""["']([^"']*)""", self._written(it)) for it in calls}
        found = [it for it in calls if begin and any(text.startswith(begin) for text in says[it][:1])]
        silent = [it for it in calls if not says[it]]
        return found or (silent if len(silent) == 1 else [])

    def _written(self, line):
        """The statement that begins there, with its strings."""
        last = line
        while last - line < _MOST_LINES and sum(_depth(it) for it in self.code[line - 1 : last]) > 0:
            last += 1
        return " ".join(self.text[line - 1 : last])

    def _lines_with(self, name, span):
        """Yields the lines between these that have the name, without what they name on the way."""
        for line in range(max(span[0], 1), min(span[1], len(self.code)) + 1):
            code = self.code[line - 1]
            if name in code and len(code) <= _WIDE:
                yield line, _WALRUS.sub(r"\1", _spaced(code))

    def _growing(self, by, name, span, calls):
        """Lines at which the variable or attribute gets more; by other names too, through so many calls."""
        grows = _patterns(by, name)[0]
        found = {line for line, code in self._lines_with(name, span) if grows.search(code)}
        if calls:
            givers, more = self._by_aliases(by, name, span)
            found = (found | more | self._by_calls(by, name, span, calls)) - givers
        return sorted(found)

    def _by_aliases(self, by, name, span):
        """Returns the lines that give a container another name, as in `add = self.kept.append` and `k = self.kept`, and
        those that let it grow by that name."""
        given, givers, found = _aliases(by, name), set(), set()
        for line, _ in self._lines_with(name, span):
            for alias in filter(None, (it.search(_spaced(self.code[line - 1])) for it in given)):
                other, method = alias.group("other", "method")
                grows = re.compile(r"(?<![\w.])%s\s*\(" % other) if method else _patterns("local", other)[0]
                uses = [at for at, code in self._lines_with(other, self.around(line)) if grows.search(code)]
                uses = [it for it in uses if it != line]
                givers.update([line] if uses else [])
                found.update(uses)
        return givers, found

    def _by_calls(self, by, name, span, calls):
        """Returns the calls that hand a container to a function of the file in which it grows: `put(kept, x)`."""
        passed, found = re.compile(_within(by, name)), set()
        for line in {self._begin(it) for it, _ in self._lines_with(name, span)}:
            statement = self._statement(line)
            for call in _CALL.finditer(statement) if len(statement) <= _WIDE else ():
                for at, (keyword, value) in enumerate(_arguments(statement[call.end() :])):
                    if passed.fullmatch(value) and self._grows_in(call, keyword or at, calls - 1):
                        found.add(line)
        return found

    def _grows_in(self, call, place, calls):
        """Whether an argument grows in the function that is called, by its name or its place among the arguments."""
        function = call.group("function")
        begins = re.compile(r"\s*(?:async\s+)?def\s+%s\s*\(" % function)
        for first, code in self._lines_with(function, (1, len(self.code))):
            if begins.match(code):
                names = _parameters(begins.sub("", self._statement(first), 1))
                if call.group("dot") and names and names[0] in _ITSELF:
                    names = names[1:]
                own = place if place in names else dict(enumerate(names)).get(place, "")
                if own.isidentifier() and self._growing("local", own, (first, self._end(first)), calls):
                    return True
        return False

    def _begin(self, line):
        """The first line of the statement that has this line in its brackets."""
        first, depth = line, 0
        for at in range(line - 1, max(line - _MOST_LINES, 0), -1):
            depth += _depth(self.code[at - 1])
            if depth > 0:
                first, depth = at, 0
        return first

    def around(self, line):
        """First and last line of the function around a line; of what is in none, of the file."""
        indent = _indent(self.code[line - 1])
        for first in range(line - 1, 0, -1):
            code = self.code[first - 1]
            if code.strip() and _indent(code) < indent:
                if _BLOCK.match(code):
                    return first, self._end(first)
                indent = _indent(code)
        return 1, len(self.code)

    def likely(self, found, has_graph):
        """Returns the lines that may store a tensor, and a tensor with a graph if it has one."""
        return [it for it in found if not self._puts_no_tensor(it, has_graph)]

    def _puts_no_tensor(self, line, has_graph):
        value = _VALUE.search(self._statement(line))
        value = value.group(value.lastgroup) if value else ""
        is_other = _NO_TENSOR.search(value) or (has_graph and _DETACHED.search(value))
        return bool(is_other)

    def follows(self, made, line):
        """Returns whether a line always runs after an earlier one: no block in between begins or ends otherwise."""
        if made != line and _BRANCH.match(self.code[line - 1]):
            # The statement is on the line of its test.
            return False
        between = [_indent(it) for it in self.code[made : line - 1] if it.strip()]
        indent = _indent(self.code[line - 1])
        return made == line or (made < line and indent <= min([_indent(self.code[made - 1]), *between]))

    def _statement(self, line):
        """The statement that begins there, up to where its brackets are closed."""
        joined, depth = [], 0
        for code in self.code[line - 1 : line - 1 + _MOST_LINES]:
            joined.append(code)
            depth += _depth(code)
            if depth <= 0 and not code.endswith("\\"):
                break
        return " ".join(" ".join(joined).split())

    def function(self, name, line):
        """First and last line of the function of this name around a line; everything, for a module's own code."""
        if name == "<module>":
            return 1, len(self.code)
        name = name.rpartition(".")[2]
        begins = re.compile(r"\s*(?:async\s+)?def\s+%s\b" % re.escape(name))
        for first in range(min(line, len(self.code)), 0, -1):
            if begins.match(self.code[first - 1]):
                last = self._end(first)
                if last >= line:
                    return first, last
        return 1, 0

    def is_outside(self, line):
        """Whether a line is in no function or class."""
        indent = _indent(self.code[line - 1])
        for code in reversed(self.code[: line - 1]):
            if code.strip() and _indent(code) < indent:
                if _BLOCK.match(code):
                    return False
                indent = _indent(code)
        return True

    def holder(self, holder):
        """First and last line of what has the holder: a function, a class, the whole of a module."""
        if holder["by"] == "global":
            return 1, len(self.code)
        if holder["function"]:
            return self.function(holder["function"], holder["line"] or 1)
        if holder["by"] in _OF_OBJECTS and 0 < (holder["line"] or 0) <= len(self.code):
            # A method of its class, or of a base of that.
            return self.around(holder["line"])
        begins = re.compile(r"\s*class\s+%s\b" % re.escape(holder["type"] or ""))
        for first, code in enumerate(self.code, 1):
            if begins.match(code):
                return first, self._end(first)
        return 1, 0

    def _end(self, first):
        """The last line of the block that begins there."""
        indent, depth = _indent(self.code[first - 1]), 0
        for line in range(first, len(self.code) + 1):
            code = self.code[line - 1]
            if line > first and depth <= 0 and code.strip() and _indent(code) <= indent:
                return line - 1
            depth += _depth(code)
        return len(self.code)


def _patterns(by, name):
    """Returns the patterns of statements that grow a value in place, and of those that assign another value."""
    owner = _owner(by)
    start = r"(?<=\.)" if by in _OF_OBJECTS else r"(?<![\w.])" if by in _WITHIN else r"(?<!self\.)\b"
    start = r"\b" if by == "class" else start
    # With keys and indices behind it, also through one call: `state["a"].append(`, `get(k).append(`.
    tail = r"(?:\s*\[[^\]]*\]|\.setdefault\([^)]*\))*"
    grows = (
        r"{3}{0}\b{1}\s*(?:\.\s*(?:{2})\s*\(|[+|]=)"
        r"|{3}{0}\b\s*\[.*?\](?!\s*\.)[^=<>!+\-*/%&|^.]*=[^=]"
        r"|\bheappush\(\s*{4}{0}\b"
    )
    assigned = (
        r"\s*(?:[\w.,\s*()\[\]]+,\s*)?[(\[\s]*{1}{0}\b(?:\s*,[\w.,\s*]*)?[)\]\s]*"
        r"(?::[^=]+)?(?:[+|&]|//|\*)?=(?!=)"
    )
    return re.compile(grows.format(name, tail, _GROWS, start, owner)), re.compile(assigned.format(name, owner))


def _owner(by):
    """An attribute follows a dot, a local variable does not; of modules and classes there are both."""
    if by in _OF_OBJECTS:
        return r"(?:\w+\s*(?:\[[^\]]*\]|\([^()]*\))?\.)+"
    return "" if by in _WITHIN else r"(?!self\.)(?:\w+\.)*" if by == "global" else r"(?:\w+\.)*"


def _within(by, name):
    """Returns the pattern of a container, or of what is in it; a slice of it is another list."""
    return r"%s%s\b(?:\s*\[[^\]:]*\]|\.setdefault\([^)]*\)|\.get\([^)]*\))*" % (_owner(by), name)


def _aliases(by, name):
    """Returns the patterns of what gives a container, what is in it, or a method of it another name."""
    value = r"%s(?:\.(?P<method>%s))?\s*" % (_within(by, name), _GROWS)
    return (
        re.compile(r"^\s*(?P<other>\w+)\s*(?::[^=]+)?=\s*%s;?\s*$" % value),
        re.compile(r"\b(?P<other>\w+)\s*:=\s*%s(?![\w.(\[])" % value),
    )


def _spaced(code):
    """Returns a line with single spaces: several in a row may be divided in many ways."""
    return " ".join(code.split())


def _arguments(text):
    """Returns the names, where they have any, and the values of arguments up to where the call's bracket closes."""
    found, depth, begin = [], 0, 0
    for at, sign in enumerate(text):
        depth += _depth(sign)
        if depth < 0 or (sign == "," and depth == 0):
            found.append(text[begin:at].strip())
            begin = at + 1
        if depth < 0:
            break
    return [_ARGUMENT.fullmatch(it).group("keyword", "value") for it in found if it]


def _parameters(text):
    """Returns the names of a function's parameters, of which places are counted, up to where the bracket closes."""
    found = [re.split(r"[:\s]", name or value)[0] for name, value in _arguments(text)]
    return [it for it in found if it != "/"]


def _depth(code):
    """Returns how many brackets more it opens than it closes."""
    return sum(code.count(it) for it in "([{") - sum(code.count(it) for it in ")]}")


def _indent(code):
    return len(code) - len(code.lstrip())


def _blank(match):
    """Returns an empty string literal that spans as many lines."""
    text = match.group()
    return "" if text.startswith("#") else '""' + "\n" * text.count("\n")


def _lines_of(file, since=math.inf):
    """Returns the lines of a source file; if there is no file (a notebook's cell), what `linecache` already has."""
    if type(file) is not str:
        return []
    try:
        # Non-blocking, so that a FIFO or device does not block the job.
        opened = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (OSError, ValueError):
        return _cached(file)
    try:
        found = os.fstat(opened)
        if not stat.S_ISREG(found.st_mode) or found.st_size > _MOST_BYTES or found.st_mtime > since:
            return []
        text = b""
        while len(text) <= _MOST_BYTES:
            more = os.read(opened, _MOST_BYTES)
            if not more:
                break
            text += more
    except OSError:
        return []
    finally:
        os.close(opened)
    # Other characters that `splitlines` splits at do not end a line in Python.
    return text.decode("utf-8", "replace").replace("\r\n", "\n").rstrip("\n").split("\n")


def _cached(file):
    linecache = sys.modules.get("linecache")
    known = linecache.cache.get(file) if linecache is not None else None
    # An entry of one part is a promise to load it, which would run a loader.
    if type(known) is not tuple or len(known) < 3:
        return []
    return [it.rstrip("\n") for it in known[2] if type(it) is str]
