"""A statement of kiln.map as a tree, and a tree as text (docs/map.md is the language).

A node is a tuple: its kind, and what that kind has.

    ("number", text)  ("name", name)  ("access", operand, subscripts)  ("unary", sign, a)
    ("binary", sign, a, b)  ("choice", c, a, b)  ("call", name, arguments)
    ("reduce", name, indices, a)
"""
import re

_WORD = re.compile(
    r"\s*((?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|\w+|<<|>>|<=|>=|==|!=|&&|\|\||.)")
_LEVELS = [("||",), ("&&",), ("|",), ("^",), ("&",), ("==", "!="), ("<", "<=", ">", ">="),
           ("<<", ">>"), ("+", "-"), ("*", "/", "%")]
_LEFT = re.compile(r"\s*(\w+)\s*(?:\[([^\]]*)\])?\s*(\+|\*|min|max|)\s*=")
REDUCTIONS = ("sum", "prod", "min", "max", "any", "all")


class Statement:
    """The left side's operand and indices, the reduction of +=, *=, min= and max=, or "", and the
    right side.  Each reduction's own indices have names that nothing else has: they begin with mark,
    as nothing in the text does."""

    def __init__(self, text, operands, rename=True):
        left = _LEFT.match(text)
        self.mark = "_"
        while re.search(rf"\b{self.mark}", text):
            self.mark += "_"
        self.output, indices, sign = left.groups()
        self.indices = [one.strip() for one in (indices or "").split(",") if one.strip()]
        self.reduction = {"+": "sum", "*": "prod"}.get(sign, sign)
        self._words = _WORD.findall(text[left.end():].rstrip())
        self._operands, self._own, self._count, self._rename = operands, {}, 0, rename
        self.right = self._expression()

    def _peek(self):
        return self._words[0] if self._words else ""

    def _take(self, word):
        if self._peek() != word:
            return False
        self._words.pop(0)
        return True

    def _expression(self):
        condition = self._binary(0)
        if not self._take("?"):
            return condition
        yes = self._expression()
        self._take(":")
        return ("choice", condition, yes, self._expression())

    def _binary(self, level):
        if level == len(_LEVELS):
            return self._unary()
        a = self._binary(level + 1)
        while self._peek() in _LEVELS[level]:
            sign = self._words.pop(0)
            a = ("binary", sign, a, self._binary(level + 1))
        return a

    def _unary(self):
        if self._peek() in ("-", "!", "~"):
            sign = self._words.pop(0)
            return ("unary", sign, self._unary())
        return self._primary()

    def _list(self, end):
        found = []
        while not self._take(end):
            found.append(self._expression())
            self._take(",")
        return found

    def _primary(self):
        word = self._words.pop(0)
        if word == "(":
            inner = self._expression()
            self._take(")")
            return inner
        if word[0].isdigit() or word[0] == ".":
            return ("number", word)
        if word in self._operands:
            return ("access", word, self._list("]") if self._take("[") else [])
        if self._take("["):
            return self._reduction(word)
        if self._take("("):
            return ("call", word, self._list(")"))
        return ("name", self._own.get(word, word))

    def _reduction(self, name):
        outer, own = self._own, []
        self._own = dict(outer)
        while not self._take("]"):
            word = self._words.pop(0)
            self._own[word] = f"{self.mark}k{self._count}" if self._rename else word
            own.append(self._own[word])
            self._count += 1
            self._take(",")
        self._take("(")
        inner = self._expression()
        self._take(")")
        self._own = outer
        return ("reduce", name, own, inner)


def kids(node):
    """The nodes that a node has, subscripts among them."""
    kind = node[0]
    if kind in ("access", "call"):
        return node[2]
    return {"unary": node[2:], "binary": node[2:], "choice": node[1:], "reduce": node[3:]}.get(
        kind, ())


def write(node):
    """A node as text, which can stand beside any sign."""
    kind = node[0]
    if kind in ("number", "name"):
        return node[1]
    if kind == "access":
        return node[1] + (f"[{','.join(map(write, node[2]))}]" if node[2] else "")
    if kind == "call":
        return f"{node[1]}({','.join(map(write, node[2]))})"
    if kind == "reduce":
        return f"{node[1]}[{','.join(node[2])}]({write(node[3])})"
    if kind == "unary":
        return f"({node[1]}{write(node[2])})"
    if kind == "binary":
        return f"({write(node[2])} {node[1]} {write(node[3])})"
    return f"({write(node[1])} ? {write(node[2])} : {write(node[3])})"


def names(node):
    """All names that stand in a node: operands, scalars and indices."""
    found = {node[1]} if node[0] in ("name", "access") else set()
    return found.union(*map(names, kids(node)))


def free(node, indices):
    """The indices that a value depends on, of those that there are."""
    found = {node[1]} & indices if node[0] == "name" else set()
    found = found.union(*(free(kid, indices) for kid in kids(node)))
    return found - set(node[2]) if node[0] == "reduce" else found
