"""What is done once torch, or its tracer, is loaded: long after `import kiln`, before it, or never."""
import sys


class _Finder:
    """Is asked for every module, and knows one: it is found as ever, and reported when it is there."""

    def __init__(self, name, loaded):
        self.name, self.loaded = name, loaded

    def find_spec(self, name, path=None, target=None):
        if name != self.name or self not in sys.meta_path:
            return None
        sys.meta_path.remove(self)
        import importlib.util  # a quarter of what `import kiln` would take

        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return spec
        load = spec.loader.exec_module

        def exec_module(module):
            load(module)
            self.loaded(module)

        spec.loader.exec_module = exec_module
        return spec


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
