"""Recognises attention that a function writes out, and writes it as one call.

The pattern is `softmax(q @ k.transpose(-2, -1) * scale + mask) @ v`, over any number of assignments in a row, with
`matmul`, `bmm` or `einsum`, with or without scale, mask (also under an `if`) and dropout. A function that uses the
scores or the weights elsewhere is left as it is.
"""

import ast
import copy

from ._fit_source import EditedSource

# The name under which the function finds the call.
CALL = "_gpuwatch_attention"
_LAST_TWO = {(-2, -1), (-1, -2), (2, 3), (3, 2)}
_CASTS = "to", "type_as", "float", "contiguous", "half", "bfloat16"


class _Attention:
    """What an expression is: scores, weights (after the softmax), with their parts."""

    def __init__(self, query, key):
        self.query, self.key = query, key
        self.scale = None
        self.is_divided = False
        self.mask = None
        self.is_causal = False
        self.dropout = None
        self.is_weights = False

    def copy(self):
        return copy.copy(self)


class Rewriter(EditedSource):
    """Looks for attention in one function's statements."""

    def __init__(self, source):
        super().__init__(source)
        self._is_triangular = _triangular(self.tree)

    def rewrite(self, line):
        """Rewrites a function; returns (line, statement) of each attention in it."""
        function = self.function(line)
        return self._block(function, function.body) if function is not None else []

    def _block(self, function, body):
        found, known, used = [], {}, {}
        for at, statement in enumerate(body):
            attention, name = self._assigned(statement, known)
            if attention is not None:
                known[name] = attention
                used.setdefault(name, []).append(at)
                continue
            done = self._product(statement, known)
            if done is None:
                for inner in ("body", "orelse"):
                    nested = getattr(statement, inner, None)
                    if isinstance(nested, list) and not isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
                        found += self._block(function, nested)
                continue
            name, original = done
            places = [it for one in known for it in used.get(one, ())]
            if self._is_used_elsewhere(function, set(known), [body[it] for it in places] + [statement]):
                _restore(statement, original)
                known, used = {}, {}
                continue
            for it in places:
                body[it] = ast.copy_location(ast.Pass(), body[it])
            found.append((statement.lineno, ast.unparse(statement)))
            known, used = {}, {}
        return found

    def _is_used_elsewhere(self, function, names, own):
        inside = {id(node) for it in own for node in ast.walk(it)}
        return any(
            isinstance(it, ast.Name) and it.id in names and isinstance(it.ctx, ast.Load) and id(it) not in inside
            for it in ast.walk(function)
        )

    def _assigned(self, statement, known):
        """Returns the attention that a statement assigns to a name; also one that masks under an `if`."""
        if isinstance(statement, ast.If) and len(statement.body) == 1 and not statement.orelse:
            before = dict(known)
            attention, name = self._assigned(statement.body[0], known)
            old = before.get(name)
            if attention is None or old is None or attention.mask is old.mask and not attention.is_causal:
                return None, None
            if attention.is_causal != old.is_causal:
                return None, None
            nothing = ast.Constant(None) if old.mask is None else old.mask
            attention = attention.copy()
            attention.mask = ast.IfExp(test=statement.test, body=attention.mask, orelse=nothing)
            return attention, name
        if isinstance(statement, ast.AugAssign) and isinstance(statement.target, ast.Name):
            target = statement.target
            value = ast.BinOp(left=ast.Name(target.id, ast.Load()), op=statement.op, right=statement.value)
        elif isinstance(statement, ast.Assign) and len(statement.targets) == 1:
            target, value = statement.targets[0], statement.value
        else:
            return None, None
        if not isinstance(target, ast.Name):
            return None, None
        attention = self._of(value, known)
        if attention is None:
            # Another value of that name.
            known.pop(target.id, None)
        return attention, target.id

    def _of(self, node, known):
        """Returns the attention that an expression is."""
        if isinstance(node, ast.Name):
            return known.get(node.id)
        pair = _product(node)
        if pair is not None:
            left, right = pair
            key = right if _is_einsum(node, "scores") else _transposed(right)
            if key is not None and self._of(left, known) is None:
                return _Attention(left, key)
            return None
        for of in (self._scaled, self._masked, self._softmax, self._dropped, self._cast):
            attention = of(node, known)
            if attention is not None:
                return attention
        return None

    def _scaled(self, node, known):
        if not isinstance(node, ast.BinOp) or not isinstance(node.op, (ast.Mult, ast.Div, ast.Add)):
            return None
        inner, other = self._of(node.left, known), node.right
        if inner is None and not isinstance(node.op, ast.Div):
            inner, other = self._of(node.right, known), node.left
        if inner is None or inner.is_weights:
            return None
        inner = inner.copy()
        if isinstance(node.op, ast.Add):
            if inner.mask is not None or inner.is_causal:
                return None
            inner.mask = other
            inner.is_causal = self._is_causal(other)
        elif inner.scale is None and inner.mask is None and not inner.is_causal:
            inner.scale, inner.is_divided = other, isinstance(node.op, ast.Div)
        else:
            return None
        return inner

    def _masked(self, node, known):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node.keywords:
            return None
        if node.func.attr in ("masked_fill", "masked_fill_") and len(node.args) == 2:
            inner, hidden = self._of(node.func.value, known), node.args[0]
        elif node.func.attr == "where" and len(node.args) == 3:
            inner, hidden = self._of(node.args[1], known), ast.UnaryOp(ast.Invert(), node.args[0])
        else:
            return None
        if inner is None or inner.is_weights or inner.mask is not None or inner.is_causal:
            return None
        inner = inner.copy()
        inner.is_causal = self._is_causal(hidden)
        inner.mask = _shown(hidden)
        return inner

    def _softmax(self, node, known):
        if not isinstance(node, ast.Call):
            return None
        name = _name(node.func)
        if name is None or "softmax" not in name.lower() or "log" in name.lower():
            return None
        inner = self._of(node.args[0], known) if node.args else None
        if inner is None and isinstance(node.func, ast.Attribute):
            inner = self._of(node.func.value, known)
        if inner is None or inner.is_weights:
            return None
        inner = inner.copy()
        inner.is_weights = True
        return inner

    def _dropped(self, node, known):
        if not isinstance(node, ast.Call) or not node.args:
            return None
        name = _name(node.func)
        if name is None or "drop" not in name.lower():
            return None
        inner = self._of(node.args[0], known)
        if inner is None or not inner.is_weights or inner.dropout is not None:
            return None
        inner = inner.copy()
        named = {it.arg: it.value for it in node.keywords}
        if len(node.args) == 1 and not named:
            # A module.
            chance = ast.Call(ast.Name("getattr", ast.Load()), [node.func, ast.Constant("p"), ast.Constant(0.0)], [])
            training = ast.Attribute(node.func, "training", ast.Load())
        else:
            chance = node.args[1] if len(node.args) > 1 else named.get("p", ast.Constant(0.5))
            training = node.args[2] if len(node.args) > 2 else named.get("training", ast.Constant(True))
        inner.dropout = ast.IfExp(test=training, body=chance, orelse=ast.Constant(0.0))
        return inner

    def _cast(self, node, known):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _CASTS:
            return self._of(node.func.value, known)
        return None

    def _is_causal(self, mask):
        """Whether a mask is made by `tril` or `triu`, here or where its attribute is set."""
        names = {_name(it) for it in ast.walk(mask) if isinstance(it, (ast.Name, ast.Attribute))}
        return bool(names & ({"tril", "triu"} | self._is_triangular))

    def _product(self, statement, known):
        """Replaces the product of weights and values in a statement; returns a name and what to restore."""
        for node in ast.walk(statement):
            for field, child in ast.iter_fields(node):
                children = child if isinstance(child, list) else [child]
                for at, it in enumerate(children):
                    call = self._call(it, known) if isinstance(it, ast.AST) else None
                    if call is None:
                        continue
                    if isinstance(child, list):
                        child[at] = call
                    else:
                        setattr(node, field, call)
                    return None, (node, field, at if isinstance(child, list) else None, it)
        return None

    def _call(self, node, known):
        pair = _product(node)
        if pair is None:
            return None
        weights, values = self._of(pair[0], known), pair[1]
        if weights is None or not weights.is_weights:
            return None
        nothing = ast.Constant(None)
        scale = weights.scale if weights.scale is not None else ast.Constant(1.0)
        if weights.is_divided:
            scale = ast.BinOp(left=ast.Constant(1.0), op=ast.Div(), right=scale)
        named = {
            "attn_mask": nothing if weights.is_causal else weights.mask,
            "dropout_p": weights.dropout,
            "is_causal": ast.Constant(True) if weights.is_causal else None,
            "scale": scale,
        }
        keywords = [ast.keyword(name, it) for name, it in named.items() if it is not None and it is not nothing]
        arguments = [weights.query, weights.key, values]
        return ast.copy_location(ast.Call(ast.Name(CALL, ast.Load()), arguments, keywords), node)


def _restore(statement, original):
    node, field, at, it = original
    if at is None:
        setattr(node, field, it)
    else:
        getattr(node, field)[at] = it


def _name(node):
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else None


def _product(node):
    """Returns both sides of a matrix product."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
        return node.left, node.right
    if not isinstance(node, ast.Call):
        return None
    name = _name(node.func)
    if name == "einsum" and len(node.args) == 3:
        return (node.args[1], node.args[2]) if _is_einsum(node, "scores") or _is_einsum(node, "values") else None
    if name not in ("matmul", "bmm") or node.keywords:
        return None
    if len(node.args) == 2:
        return node.args[0], node.args[1]
    if len(node.args) == 1 and isinstance(node.func, ast.Attribute):
        return node.func.value, node.args[0]
    return None


def _is_einsum(node, which):
    """Whether a call is `… i d, … j d -> … i j` (scores), or `… i j, … j d -> … i d` (values)."""
    if not isinstance(node, ast.Call) or _name(node.func) != "einsum" or len(node.args) != 3:
        return False
    text = node.args[0]
    text = text.value if isinstance(text, ast.Constant) and isinstance(text.value, str) else ""
    sides = text.replace(" ", "").split("->")
    terms = sides[0].split(",")
    if len(sides) != 2 or len(terms) != 2 or min(map(len, terms + sides[1:])) < 3:
        return False
    (one, other), out = terms, sides[1]
    is_alike = one[:-2] == other[:-2] == out[:-2]
    if which == "scores":
        return is_alike and one[-1] == other[-1] and out[-2:] == one[-2] + other[-2]
    return is_alike and one[-1] == other[-2] and out[-2:] == one[-2] + other[-1]


def _transposed(node):
    """Returns what an expression transposes in its last two dimensions."""
    if isinstance(node, ast.Attribute) and node.attr == "mT":
        return node.value
    if not isinstance(node, ast.Call) or _name(node.func) not in ("transpose", "swapaxes", "permute"):
        return None
    arguments = list(node.args)
    of = node.func.value if isinstance(node.func, ast.Attribute) else None
    if isinstance(of, ast.Name) and of.id == "torch":
        of = arguments.pop(0) if arguments else None
    try:
        numbers = tuple(ast.literal_eval(it) for it in arguments)
    except ValueError:
        return None
    is_last = numbers in _LAST_TWO if _name(node.func) != "permute" else numbers == (0, 1, 3, 2)
    return of if is_last else None


def _shown(hidden):
    """Returns the mask of what attends, from the mask of what does not."""
    if isinstance(hidden, ast.Compare) and len(hidden.ops) == 1 and isinstance(hidden.ops[0], ast.Eq):
        return ast.Compare(hidden.left, [ast.NotEq()], hidden.comparators)
    if isinstance(hidden, ast.UnaryOp) and isinstance(hidden.op, ast.Invert):
        return hidden.operand
    return ast.UnaryOp(ast.Invert(), hidden)


def _triangular(tree):
    """Returns the names that are set to something that `tril` or `triu` makes."""

    def makes(node):
        return any(_name(it) in ("tril", "triu") for it in ast.walk(node) if isinstance(it, (ast.Name, ast.Attribute)))

    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and makes(node.value):
            names.update(_name(it) for it in node.targets)
        elif isinstance(node, ast.Call) and _name(node.func) == "register_buffer" and len(node.args) > 1:
            if makes(node.args[1]) and isinstance(node.args[0], ast.Constant):
                names.add(node.args[0].value)
    names.discard(None)
    return names
