"""Versions of a script with edits that change no memory: `edits.py NAME` prints `[[[edit, …], {file: source}], …]`.

Edits are what people make: names, order, files, forms of loops and of conditions, helpers, settings. Those of any
script stand here, as patterns; those of one in `edits/NAME.txt`, as texts. Each version has as many as do not meet.
"""

import ast
import json
import os
import re
import sys

SCRIPTS = ["gpt", "classify", "diffusion", "detect", "ppo"]
FOLDER = os.path.dirname(os.path.abspath(__file__))
MOST = 20

# The loop of the steps or epochs, of which each version has another form: `I` its indentation, `V` and `N` its variable
# and their number.
LOOP = re.compile(r"^( +)for (step|epoch|update) in range\((40|4|10|steps)\):\n", re.MULTILINE)
LOOPS = {
    "while": "V = -1\nwhile V + 1 < N:\n    V += 1",
    "count with a break": "import itertools\nfor V in itertools.count():\n    if V >= N:\n        break",
    "endless with a break": "V = -1\nwhile True:\n    V = V + 1\n    if V == N:\n        break",
    "list": "for V in list(range(N)):",
    "from one": "for number in range(1, N + 1):\n    V = number - 1",
    "enumerate": "for V, _ in enumerate(range(N)):",
    "named range": "many = N\norder = range(many)\nfor V in order:",
    "printed line": 'for V in range(N):\n    print(f"{V:5d} of {N}")',
    "log": 'import logging\nfor V in range(N):\n    logging.info("at %d", V)',
    "count": "done = 0\nfor V in range(N):\n    done = done + 1",
    "count in place": "done = 0\nfor V in range(N):\n    done += 1",
    "share": "seen = 0\nfor V in range(N):\n    seen += 8\n    percent = 100 * seen / (8 * N)",
    "time": "import time\nbegun = time.time()\nfor V in range(N):\n    passed = time.time() - begun",
    "limit of time": "import time\nend = time.time() + 1e6\n"
    "for V in range(N):\n    if time.time() > end:\n        break",
    "check": "for V in range(N):\n    assert V >= 0, V",
    "list of numbers": "rates = []\nfor V in range(N):\n    rates.append(0.1 * V)",
    "generator": "for V in (it for outer in range(1) for it in range(N)):",
    "arguments": "import argparse\nparser = argparse.ArgumentParser()\n"
    "parser.add_argument('--steps', type=int, default=N)\nargs = parser.parse_args()\nfor V in range(args.steps):",
    "dataclass": "import dataclasses\nsettings = dataclasses.make_dataclass('Settings', [('steps', int, N)])()\n"
    "for V in range(settings.steps):",
    "dictionary": "settings = {'steps': N, 'name': 'run'}\nfor V in range(settings['steps']):",
    "JSON": "import json\nsettings = json.loads(json.dumps({'steps': N}))\nfor V in range(settings['steps']):",
    "environment": "import os\nfor V in range(int(os.environ.get('STEPS', N))):",
    "try": "for V in range(N):\n    try:\n        pass\n    finally:\n        pass",
    "progress": "class Progress:\n    def __init__(self, of):\n        self.of, self.done = of, 0\n\n"
    "    def __iter__(self):\n        for it in self.of:\n            yield it\n            self.done += 1\n\n"
    "for V in Progress(range(N)):",
}

OPTIMIZER = r"torch\.optim\.(\w+)\((?=\w+\.|groups)"
PARAMETERS = r"\((\w+)\.parameters\(\), lr"
ANY = {
    "nn as a module": (r"from torch import nn\n", "import torch.nn as nn\n"),
    "functional as a module": (r"from torch.nn import functional as F", "import torch.nn.functional as F"),
    "super with names": (r"(?s)class (\w+)\(((?:(?!\nclass ).)*?)super\(\)", r"class \1(\2super(\1, self)"),
    "to cuda": (r"\.cuda\(\)", '.to("cuda")'),
    "to a device": (r"\.cuda\(\)", '.to(torch.device("cuda", 0))'),
    "to by keyword": (r"\.cuda\(\)", '.to(device="cuda")'),
    "device": (r'device="cuda"', 'device=torch.device("cuda")'),
    "step in a lambda": (r"optimizer\.step\(\)\n", "(lambda it: it.step())(optimizer)\n"),
    "zero_grad by place": (r"zero_grad\((set_to_none=True)?\)", "zero_grad(True)"),
    "zero_grad by keyword": (r"zero_grad\((set_to_none=True)?\)", "zero_grad(set_to_none=True)"),
    "backward by keywords": (r"loss\.backward\(\)", "loss.backward(gradient=None, retain_graph=False)"),
    "backward of autograd": (r"loss\.backward\(\)", "torch.autograd.backward(loss)"),
    "parameters as a list": (PARAMETERS, r"(list(\1.parameters()), lr"),
    "parameters by keyword": (PARAMETERS, r"(params=\1.parameters(), lr"),
    "parameters in a group": (PARAMETERS, r"([{'params': \1.parameters()}], lr"),
    "optimizer by name": (OPTIMIZER, r"getattr(torch.optim, '\1')("),
    "optimizer by import": (OPTIMIZER, r"__import__('torch.optim', fromlist=['x']).\1("),
    "power": (r"\.square\(\)", ".pow(2)"),
    "set_grad_enabled": (r"with torch\.no_grad\(\):", "with torch.set_grad_enabled(False):"),
    "named context": (r"( +)with torch\.no_grad\(\):", r"\1without = torch.no_grad()\n\1with without:"),
    "train by keyword": (r"\.train\(\)", ".train(mode=True)"),
    "eval by train": (r"\.eval\(\)", ".train(False)"),
    "in place by position": (r"nn\.ReLU\(inplace=True\)", "nn.ReLU(True)"),
    "call of forward": (r"= (model|agent|net)\(", r"= \1.forward("),
    "broken lines": (
        r"(?m)^( +)((?!return|def|for|with|if|while|@).*\w)\((\w[^()\n]*), (\w[^()\n]*)\)$",
        r"\1\2(\n\1    \3,\n\1    \4,\n\1)",
    ),
}


def looped(form):
    def edit(source):
        def written(found):
            indent, variable, number = found.groups()
            text = re.sub(r"\bV\b", variable, re.sub(r"\bN\b", number, form))
            return "".join(indent + it + "\n" if it else "\n" for it in text.split("\n"))

        return LOOP.sub(written, source)

    return edit


def replaced(pairs):
    def edit(source):
        for old, new in pairs if all(old in source for old, _ in pairs) else ():
            source = source.replace(old, new)
        return source

    return edit


def own(name):
    """Yields the edits of one script: a line `# title`, then lines that go (`-`) and those that come (`+`)."""
    with open(os.path.join(FOLDER, "edits", name + ".txt")) as file:
        for part in re.split(r"^# ", file.read(), flags=re.MULTILINE)[1:]:
            title, lines = part.split("\n", 1)
            pairs = re.findall(r"((?:^-.*\n)+)((?:^\+.*\n)+)", lines, re.MULTILINE)
            yield title, replaced([["\n".join(it[1:] for it in of.splitlines()) for of in pair] for pair in pairs])


def described(source):
    tree = ast.parse(source)
    for it in ast.walk(tree):
        if isinstance(it, (ast.FunctionDef, ast.ClassDef)):
            it.body.insert(0, ast.Expr(ast.Constant("What it does.\n\nfor i in range(3): loss.backward()")))
        if isinstance(it, ast.FunctionDef):
            it.returns = ast.Constant("object")
            for of in it.args.args:
                of.annotation = ast.Constant("object")
    return ast.unparse(tree)


def renamed(source):
    """Yields one version with other variables, and one with other classes, functions and attributes."""
    tree, edits = ast.parse(source), []
    for it in ast.walk(tree):
        has_more = any(isinstance(of, (ast.Lambda, ast.FunctionDef)) and of is not it for of in ast.walk(it))
        if isinstance(it, ast.FunctionDef) and not has_more:
            names = [of for of in ast.walk(it) if isinstance(of, ast.Name)]
            stored = {of.id for of in names if isinstance(of.ctx, ast.Store)} - {of.arg for of in it.args.args}
            for of in names:
                of.id = "the_" + of.id if of.id in stored else of.id
            edits += ["variable %s of %s" % (of, it.name) for of in sorted(stored)]
    yield edits, {"train.py": ast.unparse(tree)}
    edits = []
    for it in ast.parse(source).body:
        if isinstance(it, (ast.ClassDef, ast.FunctionDef)) and it.name != "main":
            source = re.sub(r"(?<![\w\"'.])%s\b(?![\"'=])" % it.name, it.name + "_2", source)
            edits.append("name " + it.name)
    # Fields of data classes have their names elsewhere, too.
    fields = {it.target.id for it in ast.walk(ast.parse(source)) if isinstance(it, ast.AnnAssign)}
    for name in sorted(set(re.findall(r"self\.(\w+) = ", source)) - fields):
        source = re.sub(r"(?<=\.)%s\b" % name, "my_" + name, source)
        edits.append("attribute " + name)
    yield edits, {"train.py": source}


def text(*nodes):
    return "\n\n".join(map(ast.unparse, nodes))


def ordered(source):
    """Yields versions in another order, and in other files."""
    tree = ast.parse(source)
    for it in tree.body:
        if isinstance(it, ast.ClassDef):
            it.body.sort(key=lambda of: isinstance(of, ast.FunctionDef) and -of.lineno)
    kinds = (ast.ClassDef, ast.FunctionDef)
    head = [it for it in tree.body if isinstance(it, (ast.Import, ast.ImportFrom, ast.Assign))]
    moved = [it for it in tree.body if isinstance(it, kinds) and it.name != "main"]
    main = [it for it in tree.body if it not in head and it not in moved]
    names = [it.name for it in moved]
    classes, functions = ([it for it in moved if isinstance(it, kind)] for kind in kinds)
    parts = text(*head, *classes, *reversed(functions))
    begin = "def main():\n"
    late = text(*head, *main).replace(begin, begin + "    from parts.model import %s\n" % ", ".join(names))
    edits = ["methods in reverse", "functions in reverse", "in a package", "imported late"]
    yield edits, {"train.py": late, "parts/__init__.py": "", "parts/model.py": parts}
    files = {}
    for it in moved:
        others = [of for of in names if of != it.name and re.search(r"\b%s\b" % of, ast.unparse(it))]
        imports = "".join("from %s_file import %s\n" % (of.lower(), of) for of in others)
        files[it.name.lower() + "_file.py"] = "%s\n%s%s" % (text(*head), imports, ast.unparse(it))
    imports = "".join("from %s_file import %s\n" % (of.lower(), of) for of in names)
    files["whole.py"] = text(*head) + "\n" + imports + text(*[it for it in main if isinstance(it, kinds)])
    files["train.py"] = "from whole import main\n\nif __name__ == '__main__':\n    raise SystemExit(main())\n"
    yield ["a file for " + it for it in names] + ["imported main"], files


def combined(name, source):
    """Yields versions in which every edit of the script is at least once; each with one form of the loop."""
    loops = [("loop: " + it, looped(form)) for it, form in LOOPS.items()][SCRIPTS.index(name) :: len(SCRIPTS)]
    any_ = [(it, lambda source, rule=rule: re.sub(*rule, source)) for it, rule in ANY.items()]
    left = [it for it in [*own(name), *any_] if it[1](source) != source]
    while left or loops:
        changed, used, later = source, [], []
        for title, edit in loops[:1] + left:
            after = edit(changed) if len(used) < MOST else changed
            if after == changed:
                later.append((title, edit))
            else:
                changed = after
                used.append(title)
        loops, left = loops[1:], later
        assert used, [it for it, _ in left]
        if not loops and not left:
            changed = described(changed)
            used += ["docstrings", "hints"]
        compile(changed, name, "exec")
        yield used, {"train.py": changed}


def main():
    name = sys.argv[1]
    with open(os.path.join(FOLDER, name + ".py")) as file:
        source = file.read()
    versions = [*combined(name, source), *renamed(source), *ordered(source)]
    print(json.dumps(versions))


main()
