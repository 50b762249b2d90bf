# npy.py: NumPy's files for tests, made and compared byte by byte without NumPy.
#   python3 npy.py write FILE TYPE SHAPE EXPRESSION [fortran]   element i, in the file's order
#   python3 npy.py check FILE TYPE SHAPE EXPRESSION [ALLOWED]   is the file this one?
# TYPE is as in a file, "<f4"; SHAPE "2x3"; the EXPRESSION is Python's, with i, math and, for
# check, x(FILE), the elements of another file.
import math
import struct
import sys

FORMATS = {"f2": "e", "f4": "f", "f8": "d", "i1": "b", "i2": "h", "i4": "i", "i8": "q",
           "u1": "B", "u2": "H", "u4": "I", "u8": "Q", "b1": "B"}


def header(descr, shape, fortran):
    axes = ", ".join(map(str, shape)) + ("," if len(shape) == 1 else "")
    text = "{'descr': '%s', 'fortran_order': %s, 'shape': (%s), }" % (descr, fortran, axes)
    text += " " * (-(len(text) + 11) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode()


def elements(path):
    data = open(path, "rb").read()
    length = 10 + struct.unpack("<H", data[8:10])[0]
    descr = eval(data[10:length])["descr"]
    values = data[length:]
    form = FORMATS[descr[1:]]
    return struct.unpack("<%d%s" % (len(values) // struct.calcsize(form), form), values)


what, path, descr, shape, expression = sys.argv[1:6]
shape = [int(n) for n in shape.split("x")] if shape else []
files = {}
names = {"math": math, "x": lambda name: files.setdefault(name, elements(name))}
values = [eval(expression, {**names, "i": i}) for i in range(math.prod(shape))]
form = "<%d%s" % (len(values), FORMATS[descr[1:]])
if what == "write":
    fortran = len(sys.argv) > 6
    open(path, "wb").write(header(descr, shape, fortran) + struct.pack(form, *values))
    sys.exit(0)
data = open(path, "rb").read()
if not data.startswith(header(descr, shape, False)):
    sys.exit("%s begins with %r instead of %r" % (path, data[:128], header(descr, shape, False)))
got = elements(path)
allowed = float(sys.argv[6]) if len(sys.argv) > 6 else 0
wrong = [i for i in range(len(values)) if not abs(got[i] - values[i]) <= allowed]
if len(got) != len(values) or wrong:
    i = wrong[0] if wrong else 0
    sys.exit("%s: %d elements; element %d is %r, not %r" % (path, len(got), i, got[i], values[i]))
