"""The headers that a source includes: found as a compiler finds them, and read.

No condition is evaluated: what any branch includes is sent, and the compiler takes what it needs.
The compiler knows a header by one name and looks into no folder, so a directive that says it in
another way ("../x.h", or the second x.h of two folders) gets that name.
"""
import os
import posixpath
import re
import sys
import time

from ._errors import InvalidArgument, OutOfMemory
from ._includes import Text

MOST = {"headers": 2048, "source": 1 << 20, "all": 16 << 20}  # of one kernel, as the daemon has it
# Headers that the daemon has itself, in a short form, unless a folder has them.
_STANDARD = {"stdint.h", "cstdint", "stddef.h", "cstddef", "float.h", "cfloat", "limits.h",
             "climits", "math.h", "cmath", "stdio.h", "cstdio", "assert.h", "cassert",
             "cuda_runtime.h"}
# The same, but other headers of the toolkit need the toolkit's.
_SHORT = {"cuda_fp16.h", "cuda_bf16.h"}

_WORD = re.compile(r"[A-Za-z_]\w*")
_VALUES_MOST = 64  # of an include by a macro
_MISSED = re.compile(r'open source file "([^"]+)"|"([^"]+)" is not among the headers')
_SETTLED = 2 * 10**9  # ns, more than a tick of any file system's clock
_KEPT_MOST = 4 * MOST["all"]
_read_texts = {}  # of this process, by path: (what stat() says, the text)
_kept = 0  # bytes of what has been added to them


def _keep(path, stamp, text):
    global _kept
    size = text.size + 1024
    _kept += size
    if _kept > _KEPT_MOST:
        _read_texts.clear()
        _kept = size
    _read_texts[path] = stamp, text


def _read(path, status):
    stamp = (status.st_mtime_ns, status.st_size, status.st_ino, status.st_dev)
    known = _read_texts.get(path)
    if known and known[0] == stamp:
        return known[1]
    # A file that is written twice within a tick has one stamp both times.
    settled = abs(time.time_ns() - status.st_mtime_ns) >= _SETTLED
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except UnicodeDecodeError:
        raise InvalidArgument(f"{path} is no UTF-8 text") from None
    except OSError as error:
        raise InvalidArgument(f"{path} cannot be read: {error.strerror}") from None
    known = Text(text)
    if settled:
        _keep(path, stamp, known)
    return known


def _status(path):
    """What stat() says of a file; None: there is no such file."""
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return None
    return status if status.st_mode & 0o170000 == 0o100000 else None


def _toolkit():
    """Folders with the headers of CUDA: of a toolkit, or of the packages that NVRTC comes with.

    What the environment names is taken as it is; else one that has CUB comes before one without.
    """
    named = [os.environ.get(name) for name in ("KILN_CUDA_DIR", "CUDA_HOME", "CUDA_PATH")]
    found = [os.path.join(folder or ".", "nvidia", package)
             for folder in sys.path for package in ("cu13", "cuda_runtime")]
    others = []
    for root in [*named, *found, "/usr/local/cuda"]:
        include = os.path.join(root, "include") if root else ""
        if not include or not os.path.isfile(os.path.join(include, "cuda.h")):
            continue
        # Packages for CUDA 12 have CUB in one of its own.
        folders = [include, os.path.join(include, "cccl"),
                   os.path.join(os.path.dirname(root), "cuda_cccl", "include")]
        if root in named or any(os.path.isdir(os.path.join(folder, "cub")) for folder in folders):
            return folders
        others.append(folders)
    return others[0] if others else []


class _Header:
    """A header among those of one source."""

    def __init__(self, text, folder, label):
        self.text, self.folder, self.label = text, folder, label
        self.names = {}  # what its directives are to say: {place: (end, new)}


class Headers:
    """The headers of one source, found as a compiler finds them."""

    def __init__(self, folders, given, macros=()):
        self.folders = [os.fspath(folder) for folder in folders]
        self.given = {name: Text(text) for name, text in given.items()}
        self.macros = macros  # of the options
        self.toolkit = None  # looked for when nothing else has a header
        self._begin(False)

    def _begin(self, whole):
        self.whole = whole  # does the toolkit give what has a short form?
        self.has_toolkit = self.has_short = False
        self.headers = {}  # by the name that the compiler gets
        self.by_file = {}  # (device, inode): [(folder that it was found in, that name)]
        self.places = {}  # found before: {(folder, name): (path, status, where)}
        self.missing = {}  # {name: label of the first that includes it}
        self.values = set()  # of macros that includes have: (name, folder)
        self.waiting = []
        self.size = 0

    # ---- Finding ----

    def _find(self, name, folder):
        """(path, status, "beside", "folder" or "toolkit") or None, from within a folder."""
        key = folder, name
        if key not in self.places:
            self.places[key] = self._look(name, folder)
        return self.places[key]

    def _look(self, name, folder):
        places = [(folder, "beside")] if folder else []
        places += [(place, "folder") for place in self.folders]
        for place, where in places:
            path = os.path.join(place, name)
            status = _status(path)
            if status:
                return path, status, where
        if name in _STANDARD:
            return None
        if name in _SHORT and not self.whole:
            self.has_short = True
            return None
        if self.toolkit is None:
            self.toolkit = _toolkit()
        for place in self.toolkit:
            path = os.path.join(place, name)
            status = _status(path)
            if status:
                return path, status, "toolkit"
        return None

    def _name(self, path, status, where, spelled, includer):
        """The name of a file that has none yet."""
        name = spelled
        if where == "beside":
            name = posixpath.normpath(posixpath.join(posixpath.dirname(includer), spelled))
            for folder in self.folders + (self.toolkit or []):
                below = os.path.relpath(path, folder)
                # The name of a folder may be no UTF-8, which a header's has to be.
                apart = below.startswith(os.pardir) or not below.isprintable()
                found = None if apart else self._find(below, None)
                if found and os.path.samestat(found[1], status):
                    name = below
                    break
        number = 2
        unique = name
        while unique in self.headers or unique in self.given:
            unique = f"{name}@{number}"
            number += 1
        return unique

    def _resolve(self, name, folder, includer):
        """The name of the header that an include finds, which is among the others then; or None."""
        beside = posixpath.normpath(posixpath.join(posixpath.dirname(includer), name))
        for given in (beside, name):
            if given in self.given:
                if given not in self.headers:
                    self._add(given, _Header(self.given[given], None, given))
                return given
        found = self._find(name, folder)
        if not found:
            return None
        path, status, where = found
        self.has_toolkit = self.has_toolkit or where == "toolkit"
        folder = os.path.dirname(path)
        names = self.by_file.setdefault((status.st_dev, status.st_ino), [])
        for other, known in names:
            if other == folder:
                return known
        text = _read(path, status)
        for other, known in names:
            if self._are_one(text, folder, other, set()):
                break
        else:
            known = self._name(path, status, where, name, includer)
            self._add(known, _Header(text, folder, path))
        names.append((folder, known))
        return known

    def _are_one(self, text, folder, other, seen):
        """Does a text that is in two folders include the same from both?"""
        if os.path.samefile(folder, other):
            return True
        for name, quoted, *_ in text.names:
            one, two = (self._find(name, place) if quoted else None for place in (folder, other))
            if (one is None) != (two is None) or one and not os.path.samestat(one[1], two[1]):
                return False
            if one and (one[0], two[0]) not in seen:
                seen.add((one[0], two[0]))
                folders = os.path.dirname(one[0]), os.path.dirname(two[0])
                if not self._are_one(_read(*one[:2]), *folders, seen):
                    return False
        return True

    # ---- Adding ----

    def _add(self, name, header):
        self.headers[name] = header
        self.size += header.text.size
        self.waiting.append((name, header))
        if len(self.headers) > MOST["headers"] or self.size > MOST["all"]:
            self._refuse()

    def _add_includes(self, name, header):
        for spelled, quoted, place, end in header.text.names:
            known = self._resolve(spelled, header.folder if quoted else None,
                                  name if quoted else "")
            if known is None:
                self.missing.setdefault(spelled, header.label)
            elif known != spelled:
                header.names[place] = end, known

    def _values(self, macros, word, within=()):
        """All that a word may become, whatever the conditions around its definitions."""
        if word in within or word not in macros:
            return [word]
        found = []
        for value in macros[word]:
            pieces = [""]
            at = 0
            for match in _WORD.finditer(value):
                ends = self._values(macros, match[0], (*within, word))
                pieces = [piece + value[at:match.start()] + end
                          for piece in pieces for end in ends][:_VALUES_MOST]
                at = match.end()
            found += [piece + value[at:] for piece in pieces]
        return found[:_VALUES_MOST]

    def _add_values(self, main):
        """Adds the headers that an include by a macro may name."""
        headers = [main, *self.headers.values()]
        users = [header for header in headers if header.text.by_macro]
        if not users:
            return
        macros = {}
        for name, value in self.macros:
            macros.setdefault(name, []).append(value)
        for header in headers:
            for name, value in header.text.defined():
                values = macros.setdefault(name, [])
                if value not in values:
                    values.append(value)
        for header in users:
            for word in header.text.by_macro:
                for value in self._values(macros, word):
                    if value[:1] + value[-1:] in ('""', "<>"):
                        self._add_value(value[1:-1], header.folder if value[0] == '"' else None)

    def _add_value(self, spelled, folder):
        if (spelled, folder) in self.values:
            return
        self.values.add((spelled, folder))
        known = self._resolve(spelled, folder, "")
        # No directive can be changed, so the header has this name as well.
        if known and known != spelled and spelled not in self.headers:
            same = self.headers[known]
            self._add(spelled, _Header(same.text, same.folder, same.label))

    def _add_all(self, main):
        self.waiting.append(("", main))
        while self.waiting:
            while self.waiting:
                self._add_includes(*self.waiting.pop())
            self._add_values(main)

    def add(self, source, of):
        """Finds all that a source includes: its text, and those of its headers by their names.

        of: what messages call the source.
        """
        for whole in (False, True):
            self._begin(whole)
            main = _Header(Text(source), None, of)
            self._add_all(main)
            if not (self.has_toolkit and self.has_short):
                break
        return main.text.with_names(main.names), {
            name: header.text.to_send(header.names) for name, header in self.headers.items()}

    def _refuse(self):
        first = next(iter(self.headers.values())).label
        raise OutOfMemory(
            f"the source includes more than {MOST['headers']} headers or {MOST['all'] >> 20} MiB "
            f"of them, beginning with {first}: include less, or one header that has it all",
            "KILN_ELIMIT")

    def explain(self, log):
        """A sentence about the headers that a compiler missed; "" without one."""
        folders = self.folders + (self.toolkit or [])
        for match in _MISSED.finditer(log):
            name = match[1] or match[2]
            if name in self.missing:
                where = f"is in none of {', '.join(folders)}" if folders else \
                    "is not in headers, and there are no include_dirs"
                return f"{self.missing[name]} includes {name}, which {where}"
        return ""
