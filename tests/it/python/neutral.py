"""Edits a script without a change of what it does: `neutral.py FILE SEED`; stderr gets the number of edits."""

import ast
import random
import sys

source, random_ = open(sys.argv[1]).read(), random.Random(int(sys.argv[2]))
edits = 0


def count(many=1):
    global edits
    edits += many


class Rename(ast.NodeTransformer):
    """Renames the variables that a function sets."""

    def visit_FunctionDef(self, node):
        arguments = {it.arg for it in node.args.args}
        nested = [it for it in ast.walk(node) if isinstance(it, (ast.Lambda, ast.FunctionDef)) and it is not node]
        names = {it.id for it in ast.walk(node) if isinstance(it, ast.Name) and isinstance(it.ctx, ast.Store)}
        if not nested:
            for name in sorted(names - arguments):
                count()
                for it in ast.walk(node):
                    if isinstance(it, ast.Name) and it.id == name:
                        it.id = name + "_renamed"
        return node


def functions(tree):
    """Renames the script's own functions, and changes the order of what it defines."""
    names = [it.name for it in tree.body if isinstance(it, ast.FunctionDef) and it.name != "main"]
    for name in names:
        count()
        for it in ast.walk(tree):
            if isinstance(it, ast.Name) and it.id == name:
                it.id = "do_" + name
            elif isinstance(it, ast.FunctionDef) and it.name == name:
                it.name = "do_" + name
    at = [place for place, it in enumerate(tree.body) if isinstance(it, ast.FunctionDef)]
    order = at[:]
    random_.shuffle(order)
    count(sum(a != b for a, b in zip(at, order)))
    bodies = [tree.body[it] for it in order]
    for place, body in zip(at, bodies):
        tree.body[place] = body
    for it in tree.body:
        if isinstance(it, ast.ClassDef):
            methods = [place for place, one in enumerate(it.body) if isinstance(one, ast.FunctionDef)]
            reverse = [it.body[place] for place in reversed(methods)]
            for place, body in zip(methods, reverse):
                it.body[place] = body
            count(len(methods) // 2)


def extract(tree):
    """Moves what methods return into methods of their own."""
    for cls in [it for it in tree.body if isinstance(it, ast.ClassDef)]:
        for method in [it for it in cls.body if isinstance(it, ast.FunctionDef) and it.name == "forward"]:
            last = method.body[-1]
            if not isinstance(last, ast.Return) or isinstance(last.value, ast.Name):
                continue
            names = {it.id for it in ast.walk(method) if isinstance(it, ast.Name) and isinstance(it.ctx, ast.Store)}
            names |= {it.arg for it in method.args.args} - {"self"}
            # What a comprehension sets is its own.
            own = [it for it in ast.walk(last.value) if isinstance(it, ast.Name)]
            names -= {it.id for it in own if isinstance(it.ctx, ast.Store)}
            used = sorted({it.id for it in ast.walk(last.value) if isinstance(it, ast.Name)} & names)
            helper = ast.parse("def _result(self, %s):\n    pass" % ", ".join(used)).body[0]
            helper.body = [ast.Return(last.value)]
            last.value = ast.parse("self._result(%s)" % ", ".join(used), mode="eval").body
            cls.body.append(helper)
            count()


def comments(text):
    """Adds comments, blank lines and breaks."""
    out = []
    for line in text.split("\n"):
        indent = line[: len(line) - len(line.lstrip())]
        if line.strip() and not line.strip().startswith(("@", "def", "class", '"')) and random_.random() < 0.4:
            out.append(indent + "# It was written on a day with %d suns." % random_.randrange(9))
            count()
        if line.strip() and random_.random() < 0.2:
            line += "  # noted"
            count()
        out.append(line)
        if line.endswith(")") and random_.random() < 0.3:
            out.append("")
            count()
    return "\n".join(out)


tree = ast.parse(source)
for edit in (functions, extract, Rename().visit):
    edit(tree)
print(comments(ast.unparse(tree)))
print(edits, file=sys.stderr)
