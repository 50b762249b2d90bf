"""What is done once torch, or its tracer, is loaded: long after `import kiln`, before it, or never."""
import sys
from _thread import get_ident


class _Finder:
    """Is asked for every module, and knows one: it is found as ever, and reported when it is there.

    It stays until the module is loaded: many ask whether there is one, and an import may fail.
    """

    def __init__(self, name, loaded):
        self.name, self.loaded = name, loaded
        self.asking = set()  # threads that ask the other finders, of which one may ask all again

    def find_spec(self, name, path=None, target=None):
        thread = get_ident()
        if name != self.name or thread in self.asking:
            return None
        self.asking.add(thread)
        try:
            spec = self._ask(path, target)
        finally:
            self.asking.discard(thread)
        if spec is None or spec.loader is None:
            return spec
        load = spec.loader.exec_module

        def exec_module(module):
            load(module)
            # A loader of several modules comes here with each.
            if module.__name__ == name and self in sys.meta_path:
                sys.meta_path.remove(self)
                self.loaded(module)

        spec.loader.exec_module = exec_module
        return spec

    def _ask(self, path, target):
        for finder in list(sys.meta_path):
            find = None if finder is self else getattr(finder, "find_spec", None)
            spec = find and find(self.name, path, target)
            if spec:
                return spec
        return None


def _watch(name, loaded):
    if name in sys.modules:
        loaded(sys.modules[name])
    else:
        sys.meta_path.insert(0, _Finder(name, loaded))


def _trace(tracer):
    """Makes torch.compile() follow the operators."""
    from . import torch

    torch.trace(tracer)


def _offer(torch):
    """Makes torch.ops.kiln define its operators when somebody asks for the first one.

    Defining them takes longer than the rest of the package.
    """
    place = getattr(getattr(torch, "ops", None), "kiln", None)
    if place is None:
        return
    base = type(place)

    class Operators(base):
        # torch names operators, and graphs spell them, by the module of this class.
        __module__, __doc__ = base.__module__, base.__doc__

        def __getattr__(self, name):
            if not name.startswith("__"):
                from . import torch  # noqa: F401
            return base.__getattr__(self, name)

    place.__class__ = Operators


def watch():
    """Does it, whichever is imported first."""
    _watch("torch", _offer)
    _watch("torch._dynamo", _trace)
