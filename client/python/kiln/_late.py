"""What is done once torch's tracer is loaded, which may be long after `import kiln`, or never."""
import importlib.util
import sys

_TRACER = "torch._dynamo"


def _loaded(tracer):
    from . import torch

    torch.trace(tracer)


class _Finder:
    """Is asked for every module, and knows one: it is found as ever, and reported when it is there."""

    def find_spec(self, name, path=None, target=None):
        if name != _TRACER or self not in sys.meta_path:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return spec
        load = spec.loader.exec_module

        def exec_module(module):
            load(module)
            _loaded(module)

        spec.loader.exec_module = exec_module
        return spec


def watch():
    """Makes torch.compile() follow the operators, whichever of both is imported first."""
    if _TRACER in sys.modules:
        _loaded(sys.modules[_TRACER])
    else:
        sys.meta_path.insert(0, _Finder())
