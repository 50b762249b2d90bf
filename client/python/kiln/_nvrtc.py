"""Helps a daemon that is started from here to find NVRTC.

kilnd looks beside its own package (nvidia/cu13/lib, nvidia/cuda_nvrtc/lib), in toolkits and where
the loader looks.  Packages of another folder of sys.path, such as torch's, are named to it.
"""
import os
import sys

_PLACES = (("cu13", "libnvrtc.so.13"), ("cuda_nvrtc", "libnvrtc.so.13"),
           ("cuda_nvrtc", "libnvrtc.so.12"))
_done = False


def find():
    """The first folder of sys.path with a wheel of NVRTC below it, and the library; or None."""
    for folder in sys.path:
        for package, library in _PLACES:
            path = os.path.join(folder or ".", "nvidia", package, "lib", library)
            if os.path.exists(path):
                return os.path.abspath(folder), path
    return None


def prepare():
    """Sets KILN_CUDA_DIR, which a daemon inherits, unless somebody has said where to look."""
    global _done
    if _done:
        return
    _done = True
    if any(os.environ.get(name) for name in ("KILN_CUDA_DIR", "KILN_NVRTC", "CUDA_HOME")):
        return
    found = find()
    if found:
        os.environ["KILN_CUDA_DIR"] = found[0]
