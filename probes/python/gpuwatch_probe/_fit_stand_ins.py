"""What stands in the place of a loop's or a test's names for a moment, so that the loop ends or the branch is entered."""

import ast


class _Nothing:
    """What has no items and is false, whatever is done with it."""

    def __getattr__(self, name):
        return self

    def __call__(self, *arguments, **named):
        return self

    def __iter__(self):
        return iter(())

    def __next__(self):
        raise StopIteration

    def __len__(self):
        return 0

    def __bool__(self):
        return False

    def _is_true(self, other):
        return bool(self)

    def _itself(self, *others):
        return self

    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __contains__ = _is_true
    __getitem__ = __neg__ = __invert__ = __abs__ = __round__ = _itself
    __add__ = __sub__ = __mul__ = __truediv__ = __floordiv__ = __mod__ = __pow__ = __and__ = __or__ = _itself
    __radd__ = __rsub__ = __rmul__ = __rtruediv__ = __rfloordiv__ = __rmod__ = __rpow__ = __rand__ = __ror__ = _itself
    __hash__ = object.__hash__


class _Truth(_Nothing):
    """What is true, whatever it is compared with."""

    def __bool__(self):
        return True


_NOTHING, _TRUTH = _Nothing(), _Truth()


def _none(*arguments, **named):
    """Stands for a function whose result is awaited."""


def iterated(node):
    """Returns what to put in the place of names so that an expression has no items; `None` where that is not possible."""
    names = set(_roots(node))
    return dict.fromkeys(names, _NOTHING) if names else None


def _roots(node):
    """Yields the names with which an expression begins that is iterated."""
    if isinstance(node, ast.Name):
        yield node.id
    elif isinstance(node, ast.GeneratorExp):
        yield from _roots(node.generators[0].iter)
    elif isinstance(node, ast.BinOp):
        yield from (*_roots(node.left), *_roots(node.right))
    elif isinstance(node, ast.BoolOp):
        yield from (name for it in node.values for name in _roots(it))
    elif isinstance(node, ast.IfExp):
        yield from (*_roots(node.body), *_roots(node.orelse))
    else:
        inner = getattr(node, "func", None) or getattr(node, "value", None)
        yield from _roots(inner) if isinstance(inner, ast.expr) else ()


def decided(test, truth):
    """Returns what to put in the place of names so that a test is true or false; `None` where that is not possible."""
    nodes = list(ast.walk(test))
    names = {it.id for it in nodes if isinstance(it, ast.Name) and isinstance(it.ctx, ast.Load)}
    names -= {it.id for it in nodes if isinstance(it, ast.Name) and isinstance(it.ctx, ast.Store)}
    if not names:
        return None
    code = compile(ast.Expression(test), "<test>", "eval")
    for it in (_NOTHING, _TRUTH, None, _none):
        try:
            if bool(eval(code, dict.fromkeys(names, it))) == truth:
                return dict.fromkeys(names, it)
        except Exception:
            pass
    return None


def entering(test, body):
    """Returns the same for a branch on the line of its test; `None` also where its first statement would see what stands
    there. A call shows the names again."""
    hidden = decided(test, True)
    used = {it.id for it in ast.walk(body[0]) if isinstance(it, ast.Name)}
    return hidden if hidden is not None and not used & set(hidden) else None
