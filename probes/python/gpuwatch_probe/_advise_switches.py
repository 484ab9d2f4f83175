"""Switches of training frameworks, for techniques that such a framework applies itself.

A switch is an argument of a framework's class or function. It is set where the job makes an object of that class or
calls the function, so that the framework does the same as with the job's own line changed.
"""

import functools
import inspect
import sys


class Switches:
    """The classes and functions of frameworks that the techniques of a process look at."""

    def __init__(self):
        self._wanted = {}

    def on_made(self, module, name, function, method="__init__"):
        """Calls a function when a class's object is made.

        Before `__init__`, it gets the named and positional arguments as one dictionary, which it may change. Before
        another method, it gets the object.
        """
        self._wanted.setdefault(module, []).append((name, lambda cls: _wrap(cls, function, method)))

    def on_called(self, module, name, before, after=None):
        """Calls a function before a framework's function: with its arguments as one dictionary, which it may change,
        and the frame of the caller. `after` gets what the framework's function returns."""

        def replace(function):
            setattr(sys.modules[module], name, _called(function, before, after))

        self._wanted.setdefault(module, []).append((name, replace))

    def install(self):
        """Follows imports from now on."""
        for module in list(self._wanted):
            if module in sys.modules:
                self._found(sys.modules[module])
        if self._wanted:
            sys.meta_path.insert(0, _Finder(self))

    def wants(self, module):
        """Whether a module has such a class or function."""
        return module in self._wanted

    def _found(self, module):
        for name, follow in self._wanted.pop(module.__name__, ()):
            try:
                follow(getattr(module, name))
            except Exception:
                continue

    def loaded(self, module):
        """A module was imported."""
        self._found(module)


class _Finder:
    """Notices that a module was imported."""

    def __init__(self, switches):
        self._switches = switches

    def find_spec(self, name, path, target=None):
        if not self._switches.wants(name):
            return None
        for finder in sys.meta_path:
            if finder is self or not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                self._follow(spec.loader)
                return spec
        return None

    def _follow(self, loader):
        execute = getattr(loader, "exec_module", None)
        if execute is None:
            return

        def executed(module):
            execute(module)
            self._switches.loaded(module)

        loader.exec_module = executed


def _called(function, before, after):
    signature = inspect.signature(function)

    @functools.wraps(function)
    def called(*arguments, **named):
        values = _by_name(signature, arguments, named)
        if values is None:
            return function(*arguments, **named)
        before(values, sys._getframe(1))
        result = function(**values)
        if after is not None:
            after(result)
        return result

    return called


def _wrap(cls, function, method):
    original = cls.__dict__.get(method) or getattr(cls, method)
    if method != "__init__":

        @functools.wraps(original)
        def before(self, *arguments, **named):
            function(self)
            return original(self, *arguments, **named)

        setattr(cls, method, before)
        return
    signature = inspect.signature(original)
    own = next(iter(signature.parameters))

    @functools.wraps(original)
    def made(self, *arguments, **named):
        values = _by_name(signature, (self, *arguments), named)
        if values is None:
            return original(self, *arguments, **named)
        # Without the object itself, everything is named.
        values.pop(own)
        function(values)
        return original(self, **values)

    cls.__init__ = made


def _by_name(signature, arguments, named):
    """Returns all arguments of a call by name; `None` where they do not fit, or have no names."""
    parameters = signature.parameters.values()
    if any(it.kind in (it.POSITIONAL_ONLY, it.VAR_POSITIONAL) for it in parameters):
        return None
    try:
        values = dict(signature.bind_partial(*arguments, **named).arguments)
    except TypeError:
        return None
    rest = next((it.name for it in parameters if it.kind is it.VAR_KEYWORD), None)
    more = values.pop(rest, {})
    return {**values, **more}
