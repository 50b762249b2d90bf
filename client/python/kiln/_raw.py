"""kiln.RawKernel: CUDA C++ of one's own, with the headers that it includes."""
import os
import sys

from . import _kiln
from ._errors import InvalidArgument, NotSupported, check, refusal


def is_by_value(type):
    """Is an object of the type a scalar, whose bytes are the argument?  The extension asks once."""
    numpy = sys.modules.get("numpy")
    if numpy is not None and issubclass(type, numpy.generic):
        return True
    ctypes = sys.modules.get("_ctypes")
    return ctypes is not None and issubclass(
        type, (ctypes._SimpleCData, ctypes.Structure, ctypes.Union, ctypes.Array, ctypes._Pointer))


# Options that have a value, perhaps as the next word, by the name that the daemon knows.
_VALUED = {"define-macro": "-D", "include-path": "-I", "gpu-architecture": "", "arch": "",
           "std": "-std=", "fmad": "--fmad=", "ftz": "--ftz=", "prec-div": "--prec-div=",
           "prec-sqrt": "--prec-sqrt=", "maxrregcount": "--maxrregcount="}
_PLAIN = {"use_fast_math": "--use_fast_math", "generate-line-info": "-lineinfo",
          "lineinfo": "-lineinfo", "default-device": "-default-device",
          "device-as-default-execution-space": "-default-device", "restrict": "--restrict",
          "extra-device-vectorization": "--extra-device-vectorization"}


def _words(options):
    """Each option as the daemon writes it, with its value: NVRTC takes it in several ways."""
    words = iter(options)
    for word in words:
        name, equals, value = word.lstrip("-").partition("=")
        if word[:2] in ("-D", "-I"):
            name, value = word[:2], word[2:]
        elif name in _VALUED and word[:1] == "-":
            name = _VALUED[name]
            if not name:
                raise InvalidArgument(f"option {word}: a kernel is compiled for the GPU that it is "
                                      "launched on; compile() takes a target")
        else:
            yield _PLAIN.get(name, word) if word[:1] == "-" and not equals else word, ""
            continue
        value = value.strip() or next(words, "").strip()
        if not value:
            raise InvalidArgument(f"option {word} has no value")
        yield name, value


def written(source, name):
    """For each parameter of a kernel, whether it may write what a pointer there points to.

    A pointer to const is only read, and everything else may be written.  b"" where the source does
    not say: the kernel is in a header, or declared with several numbers of parameters.
    """
    import re

    text = re.sub(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', " ", source, flags=re.S)
    base = name.partition("<")[0].rpartition("::")[2].strip()
    found = set()
    for match in re.finditer(rf"\b{re.escape(base)}\s*\(", text):
        head = re.split("[;{}]", text[:match.start()])[-1]
        if "__global__" in head:
            found.add(tuple(map(_may_write, _parameters(text, match.end()))))
    if len({len(row) for row in found}) != 1:
        return b""
    return bytes(map(any, zip(*found)))


def _parameters(text, begin):
    """The parameters of a function, up to the parenthesis that closes them."""
    depth, from_, words = 0, begin, []
    for at in range(begin, len(text)):
        closes = text[at] in ")]>}"
        if depth == 0 and (text[at] == "," or closes):
            words.append(text[from_:at])
            from_ = at + 1
            if closes:
                break
        depth += (text[at] in "([<{") - (closes and depth > 0)
    return words if "".join(words).strip() else []


def _may_write(parameter):
    parameter = parameter.partition("=")[0]
    before, star, behind = parameter.partition("*")
    return not (star and "*" not in behind and "const" in before.split() and
                not set(parameter) & set("([&"))


def _settings(options, include_dirs):
    """What options mean: macros, folders, and options for the compiler."""
    macros, folders, others = [], list(include_dirs), []
    for name, value in _words(options):
        if name == "-I":
            folders.append(value)
        elif name == "-D":
            macro, equals, text = value.partition("=")
            macros.append((macro, text if equals else "1"))
        else:
            others.append(name + value)
    return macros, folders, others


def _toolkits():
    """Where the packages that NVRTC comes with have the headers of CUDA, if they are there."""
    return tuple(os.fsencode(os.path.join(folder or ".", "nvidia", package, "include"))
                 for folder in sys.path for package in ("cu13", "cuda_runtime"))


def _check_text(argument, value):
    check("RawKernel", argument, value, str, "a text")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise refusal("RawKernel", argument, value, "a text that UTF-8 has",
                      wrong_type=False) from None


def _check(source, name, options, include_dirs, headers, file):
    """Refuses arguments that are not of the types that they must be."""
    for argument, value in [("source", source), ("name", name), ("file", file)]:
        _check_text(argument, value)
    for argument, values, types, rule in [
            ("options", options, str, "a tuple of texts"),
            ("include_dirs", include_dirs, (str, os.PathLike), "a tuple of paths")]:
        check("RawKernel", argument, values, (tuple, list), rule)
        for place, value in enumerate(values):
            check("RawKernel", f"{argument}[{place}]", value, types, "a " + rule[len("a tuple of "):-1])
            if argument == "options":
                _check_text(f"options[{place}]", value)
    check("RawKernel", "headers", headers, dict, "a dictionary of texts by their names")
    for header, text in headers.items():
        _check_text("a name of headers", header)
        _check_text(f"headers[{header!r}]", text)


class RawKernel(_kiln.Raw):
    """A kernel of CUDA C++, called as kernel(grid, block, args, shared_mem=0).

        add = kiln.RawKernel('''
        template <typename T> __global__ void add(const T *x, T *y, long long n)
        {
            long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
            if (i < n)
                y[i] += x[i];
        }''', "add<float>")
        add((n + 255) // 256, 256, (x, y, n))

    source: the text; name: a __global__ function or an instance of a template; options: of the
    compiler ("-std=c++20", "--use_fast_math", "-DN=4", "-I" with a folder); include_dirs: folders
    that headers are looked for in, before those of the CUDA toolkit; headers: texts of headers by
    the names that #include has; file: what messages call the source.

    grid and block are an integer or up to three.  args are tensors, whose addresses the kernel
    gets, and scalars: an int is 64 bits, a float a double, a bool one byte, None a null pointer; a
    scalar of NumPy or ctypes has its own type.  On CUDA the kernel is launched on the current
    stream of the tensors' library and not waited for; on the host the tensors are copied to device
    cpu and back, all bytes from the first element to the last.

    The first call compiles, once for all programs of the host.  CompileError.log has all that the
    compiler said.  InvalidArgument: arguments that do not fit the kernel's parameters.
    """

    def __new__(cls, *unused, **named):
        return super().__new__(cls)

    def __init__(self, source, name, options=(), backend="nvrtc", *, include_dirs=(), headers={},
                 file="raw.cu"):
        if backend != "nvrtc":
            raise NotSupported(f"backend {backend!r} is not \"nvrtc\", the only one that there is")
        _check(source, name, options, include_dirs, headers, file)
        macros, folders, others = _settings(options, include_dirs)
        for folder in folders:
            if not os.path.isdir(folder):
                raise InvalidArgument(f"{os.fspath(folder)} is no folder to include from")
        super().__init__((file, source, name), tuple(headers.items()), tuple(macros), tuple(others),
                         tuple(map(os.fsencode, folders)), _toolkits())
        self.name = name
        self._source = source

    def _written(self):
        return written(self._source, self.name)

    @property
    def num_regs(self):
        """Registers of a thread, on the target of compile() or the GPU of the last launch.

        None where it is not known, as on device cpu; so are the two below.
        """
        return self._figure(0)

    @property
    def shared_size_bytes(self):
        """Bytes of the shared memory that the source declares."""
        return self._figure(1)

    @property
    def local_size_bytes(self):
        """Bytes of local memory of a thread: arrays and spilled registers."""
        return self._figure(2)

    def _figure(self, place):
        value = self._figures()[place]
        return value if value >= 0 else None

    def __repr__(self):
        return f"<kiln.RawKernel {self.name}>"
