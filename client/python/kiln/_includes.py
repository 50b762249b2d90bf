"""What a text includes, as a compiler reads it, and the text with other names for that.

Regular expressions find the directives of nearly every text.  The few in which a comment, a raw
string or a joined line may hide one, or be taken for one, are read token by token.
"""
import bisect
import re

from . import _kiln

# How compilers read a text, of which the daemon has the same rules (lex.c): a backslash joins two
# lines, a comment is a blank, and neither counts within a raw string.
_JOINT = r"\\[ \t\r\f\v]*\n"
_GAP = rf"(?:[ \t\r\f\v]|{_JOINT}|/\*(?:[^*]|\*(?!/))*\*/)*"
_TOKEN = re.compile(
    rf"(?P<joint>{_JOINT})"
    rf"|(?P<comment>/(?:{_JOINT})*(?:/(?:{_JOINT}|[^\n])*|\*.*?(?:\*(?:{_JOINT})*/|\Z)))"
    r'|(?P<raw>(?<!\w)(?:u8|[LuU])?R"(?P<mark>[^\s()\\"]{0,16})\(.*?(?:\)(?P=mark)"|\Z))'
    rf"|(?<!\w)(?:include|__has_include{_GAP}(?P<open>\()){_GAP}"
    rf'(?P<name>"(?:{_JOINT}|[^"\n])*"|<(?:{_JOINT}|[^>\n])*>)'
    r"|(?<!\w)[0-9][\w.]*(?:'\w+)+"
    rf'|"(?:{_JOINT}|\\.|[^"\\\n])*"?|' rf"'(?:{_JOINT}|\\.|[^'\\\n])*'?", re.S)
_NAME = r'(?:"([^"\n]+)"|<([^>\n]+)>)'
_INCLUDE = re.compile(r"^[ \t]*(?:#|%:)[ \t]*include(?:[ \t]*" + _NAME +
                      r"|[ \t]+([A-Za-z_]\w*))", re.M)
_TEST = re.compile(r"(?:has_include|HAS_INCLUDE)[ \t]*\([ \t]*" + _NAME)
# A macro whose value may be a part of a header's name.
_DEFINE = re.compile(r"^[ \t]*(?:#|%:)[ \t]*define[ \t]+(\w+)[ \t]+"
                     r'([<"]?[\w./+-]+[>"]?)[ \t\r]*(?:$|/[/*])', re.M)
# Where these expressions do not see what a compiler sees.  Each begins with what is soon found.
_HIDING_ALL = [re.compile(r"%:"), re.compile(r"\*/[ \t]*#"),
               re.compile(r"#[ \t]*(?:/\*|in?c?l?u?d?\\\s|\\\s)")]
_HIDING = [*_HIDING_ALL,
           re.compile(r"include[ \t]*(?:/\*|\\\s|\([ \t]*(?:/\*|\\\s)|[\"<][^\">\n]*\\\s)")]
_HIDING_MACRO = [*_HIDING_ALL, re.compile(r"define[ \t]*(?:\w+[ \t]*)?(?:/\*|\\\s)")]


class _Joined:
    """A text with its lines joined, comments made blanks and raw strings emptied."""

    def __init__(self, text):
        self.pieces = []
        self.size = 0
        self.begins, self.places = [0], [0]  # of pieces: in this text and in the one it is of
        at = 0
        for match in _TOKEN.finditer(text):
            begin, end = match.span()
            self._add(text[at:begin], at)
            at = end
            if match["comment"]:
                self._add(" ", begin)
            elif match["raw"]:
                self._add('""', begin)
            elif match["name"]:
                self._add("__has_include(" if match["open"] else "include ", begin)
                self._add_joined(match["name"], match.start("name"))
            elif not match["joint"]:
                self._add_joined(match[0], begin)
        self._add(text[at:], at)
        self.text = "".join(self.pieces)

    def _add(self, piece, place):
        if piece:
            self.pieces.append(piece)
            self.begins.append(self.size)
            self.places.append(place)
            self.size += len(piece)

    def _add_joined(self, text, place):
        at = 0
        for match in re.finditer(_JOINT, text):
            self._add(text[at:match.start()], place + at)
            at = match.end()
        self._add(text[at:], place + at)

    def place(self, at):
        """Where a character is in the text that this is of."""
        piece = bisect.bisect_right(self.begins, at) - 1
        return self.places[piece] + at - self.begins[piece]


def _is_doubtful(text, at):
    """May a directive stand in a comment, or go on from the line above?"""
    opened = text.rfind("/*", 0, at)
    above = text.rfind("\n", 0, max(at - 1, 0)) + 1
    return opened >= 0 and opened > text.rfind("*/", 0, at) - 2 or \
        text[above:at].rstrip().endswith("\\")


def _hides(text, expressions):
    return any(expression.search(text) for expression in expressions)


class Text:
    """A text, and what it includes."""

    __slots__ = ("text", "size", "names", "macros", "by_macro", "renamed")

    def __init__(self, text):
        self.text = text
        self.size = len(text) if text.isascii() else len(text.encode())
        self.macros = None
        self.renamed = {}
        plain, joined = text, None
        found = list(_INCLUDE.finditer(text)) if "include" in text else []
        if _hides(text, _HIDING) or found and (
                'R"' in text or any(_is_doubtful(text, at.start()) for at in found)):
            joined = _Joined(text)
            plain = joined.text
            found = list(_INCLUDE.finditer(plain))
        self.by_macro = [match[3] for match in found if match[3]]
        if "has_include" in plain or "HAS_INCLUDE" in plain:
            found += _TEST.finditer(plain)
        self.names = []  # (name, in quotes?, where it begins, where it ends)
        for match in found:
            if match[1] or match[2]:
                begin, end = match.span(match.lastindex)
                if joined:
                    begin, end = joined.place(begin), joined.place(end - 1) + 1
                self.names.append((match[1] or match[2], match[1] is not None, begin, end))

    def defined(self):
        """The macros of the text that may be parts of names: (macro, value)."""
        if self.macros is None:
            text = self.text
            if _hides(text, _HIDING_MACRO):
                text = _Joined(text).text
            self.macros = _DEFINE.findall(text) if "define" in text else ()
        return self.macros

    def with_names(self, names):
        """The text with other names in its directives: {place: (end, new)}."""
        if not names:
            return self.text
        pieces, at = [], 0
        for place, (end, new) in sorted(names.items()):
            pieces += [self.text[at:place], new]
            at = end
        return "".join(pieces) + self.text[at:]

    def to_send(self, names):
        """The same as a text that kernels share."""
        key = tuple(sorted(names.items()))
        if key not in self.renamed:
            self.renamed.clear()  # one tree of headers names it in one way
            self.renamed[key] = _kiln.Text(self.with_names(names))
        return self.renamed[key]
