#!/usr/bin/env python3
"""absent: lets PyTorch's wheel be imported without the CUDA libraries that it is linked with.

  python absent.py    (the python of a virtual environment with torch in it)

The ordinary wheel of PyTorch wants gigabytes of them, and calls none on a CPU.  For each library
that is missing this makes a file of its name beside those of the wheel, where the loader looks.
The names that the wheel takes from them are defined as functions that fail, in one library of
their own: a library without versions of symbols may define a versioned one, as long as it does not
have the name of the library that the version belongs to.
"""
import glob
import importlib.util
import os
import re
import subprocess
import sys


def output_of(*words):
    return subprocess.run(words, stdout=subprocess.PIPE, check=True, text=True).stdout


def look(directory):
    """The names of the libraries that are missing, and of what would be in them."""
    needed, undefined, defined = set(), set(), set()
    for path in glob.glob(os.path.join(directory, "*.so*")):
        needed |= set(re.findall(r"\(NEEDED\).*\[(.*)\]", output_of("readelf", "-d", path)))
        for line in output_of("nm", "-D", path).splitlines():
            kind, name = line.split()[-2:]
            (undefined if kind == "U" else defined).add(name.split("@")[0])
    # The runtime is small, and PyTorch asks it how many GPUs there are.
    libraries = [name for name in sorted(needed) if re.match(r"lib(cu|nv|nccl)", name) and
                 not name.startswith("libcudart.") and
                 not os.path.exists(os.path.join(directory, name))]
    functions = [name for name in sorted(undefined - defined)
                 if re.match(r"cu(?!da[A-Z])|nv|nccl", name)]
    return libraries, functions


def make(directory, libraries, functions):
    names, empty = "libabsent_names.so", "libabsent.so"
    source = os.path.join(directory, "absent.c")
    compiler = [os.environ.get("CC", "cc"), "-w", "-shared", "-nostdlib"]
    with open(source, "w", encoding="utf-8") as file:
        file.writelines(f"int {name}(void) {{ return 1; }}\n" for name in functions)
    subprocess.run(compiler + ["-Wl,-soname," + names, "-o", names, source], check=True,
                   cwd=directory)
    subprocess.run(compiler + ["-Wl,--no-as-needed,-rpath,$ORIGIN", "-o", empty, names], check=True,
                   cwd=directory)
    for name in libraries:
        os.symlink(empty, os.path.join(directory, name))


def main():
    torch = importlib.util.find_spec("torch")
    if torch is None:
        sys.exit("absent: this python has no torch")
    directory = os.path.join(os.path.dirname(torch.origin), "lib")
    libraries, functions = look(directory)
    if libraries:
        make(directory, libraries, functions)
    print(f"absent: {len(functions)} functions of {len(libraries)} libraries are stood in for")


if __name__ == "__main__":
    main()
