#!/usr/bin/env python3
"""bench_python: what a call of the Python package costs beside torch, torch.compile, Triton and CuPy.

  python3 bench_python.py [--device cuda|cpu] [--quick] [--only softmax,first] [--beside torch,cupy]
                          [--seconds 90] [--cache DIR] [--json FILE]

Host time of an asynchronous call: the clock runs over a batch of calls that are not waited for, the
device rests before each batch, and the contenders of a section take turns; medians of batches.
Every contender's result is compared with one of float64 first.  The kernels are small, so that the
queue never fills.  On device cpu a call waits for its result, and aims are not judged.

Sections:
  import      `import kiln` in a fresh process
  softmax     a call that makes its output
  out         softmax into a given output
  layer_norm, rms_norm, permute
  autograd    a forward call that records for backward
  raw         a kernel of one's own, launched from Python
  first       the first result of a fresh process after `import torch` and a context, warm daemon
  miss        first calls of shapes never seen

--beside   compiled, triton, cupy, or none: who is measured beside torch; default all that can be
           imported
--cache    the daemon's directory of kernels; default a new one
--seconds  sections that would begin later are left out

Exit status: 0, 1 a result was wrong, 2 usage, 77 torch or kiln cannot be imported.
"""
import argparse
import random
import sys
import time

from python_bench import Daemon, Table, child, find, first_line, median, settle

ROWS, COLUMNS = 64, 1024
SECTIONS = ["import", "softmax", "out", "layer_norm", "rms_norm", "permute", "autograd", "raw",
            "daemon", "first", "miss"]
BESIDE = ["compiled", "triton", "cupy"]

SOURCE = r"""
extern "C" __global__ void add(const float *x, float *y, long long n)
{
	long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
	if (i < n)
		y[i] = x[i] + 1.0f;
}
"""

FIRST = """
import json, time
import torch
x = torch.randn(64, 1024, device={device!r})
wait = torch.cuda.synchronize if {device!r} == "cuda" else lambda: None
wait()
began = time.perf_counter()
{load}
loaded = time.perf_counter()
y = {call}
wait()
ended = time.perf_counter()
assert torch.allclose(y.double().sum(), torch.tensor(64.0, dtype=torch.double, device=y.device))
print(json.dumps(dict(load=(loaded - began) * 1e3, all=(ended - began) * 1e3)))
"""

IMPORT = """
import json, time
began = time.perf_counter()
import {module}
print(json.dumps(dict(all=(time.perf_counter() - began) * 1e3)))
"""


class Bench:
    def __init__(self, options, torch, kiln):
        self.options, self.torch, self.kiln = options, torch, kiln
        self.device, self.table = options.device, options.table
        self.gpu = self.device == "cuda"
        self.calls, self.rounds = (50, 5 if options.quick else 21) if self.gpu else (3, 3)
        self.wait = torch.cuda.synchronize if self.gpu else lambda: None
        self.beside, self.modules = [], {}
        for name in options.beside:
            module, wrong = find({"compiled": "torch", "triton": "triton", "cupy": "cupy"}[name])
            if name in ("triton", "cupy") and module and not self.gpu:
                wrong = f"{name} is left out: it needs a GPU"
            if wrong:
                self.table.say(wrong)
            else:
                self.beside.append(name)
                self.modules[name] = module

    def rand(self, *shape):
        return self.torch.randn(*shape, device=self.device)

    # ---- Contenders ----

    def checked(self, section, contenders, expected):
        """Those that run and agree with the result of float64."""
        torch, kept = self.torch, {}
        for name, call in contenders:
            try:
                got = call()
                self.wait()
                if not isinstance(got, torch.Tensor):
                    got = torch.from_dlpack(got)
            except Exception as error:  # of any library: one contender less
                kind = type(error).__name__
                self.table.say(f"{section}: {name} is left out: {kind}: {first_line(error)}")
                continue
            got = got.detach().double()
            if got.shape != expected.shape or not torch.allclose(got, expected, 1e-4, 1e-4):
                self.table.fail(f"{section}: {name} disagrees with the result of float64")
                continue
            kept[name] = call
        return kept

    def times(self, calls):
        """Microseconds of a call, for each contender."""
        figures = {name: [] for name in calls}
        for call in calls.values():
            for _ in range(2 if not self.gpu else 100):
                call()
        order = list(calls)
        for _ in range(self.rounds):
            for name in order:
                call = calls[name]
                self.wait()
                began = time.perf_counter()
                for _ in range(self.calls):
                    call()
                ended = time.perf_counter()
                figures[name].append((ended - began) * 1e6 / self.calls)
            order = order[1:] + order[:1]
        self.wait()
        return {name: median(values) for name, values in figures.items()}

    def compare(self, section, contenders, expected, aims):
        """aims: for pairs of contenders, the most that the quotient of their times should be."""
        times = self.times(self.checked(section, contenders, expected))
        for name, value in times.items():
            pairs = [(of, aim) for (who, of), aim in aims.items() if who == name and of in times]
            if not pairs:
                self.table.row(section, name, value, "us")
            for of, aim in pairs:
                self.table.row(section, name, value, "us", times[of], aim, of)

    def compiled(self, function, *arguments):
        """torch.compile of a function, ready to be called; nothing where it was not asked for."""
        if "compiled" not in self.beside:
            return []
        made = self.torch.compile(function, dynamic=False)
        return [("torch.compile", lambda: made(*arguments))]

    # ---- Operators ----

    def softmax(self, into=False):
        torch, kiln = self.torch, self.kiln
        x = self.rand(ROWS, COLUMNS)
        y = torch.empty_like(x)
        expected = torch.softmax(x.double(), -1)
        if into:
            calls = [("torch.softmax(out=)", lambda: torch.softmax(x, -1, out=y)),
                     ("torch.softmax", lambda: torch.softmax(x, -1)),
                     ("kiln.softmax(out=)", lambda: kiln.softmax(x, out=y))]
        else:
            calls = [("torch.softmax", lambda: torch.softmax(x, -1)),
                     ("kiln.softmax", lambda: kiln.softmax(x))]
            calls += self.compiled(lambda x: torch.softmax(x, -1), x)
        if "triton" in self.beside:
            calls.append(("Triton", self.triton_softmax(x, y if into else None)))
        if "cupy" in self.beside and not into:
            calls += self.cupy_softmax(x)
        who = "kiln.softmax(out=)" if into else "kiln.softmax"
        aims = {(who, "torch.softmax"): 0.8 if into else 1.0, (who, "torch.compile"): 1 / 3,
                (who, "Triton"): 0.5, ("kiln.softmax, CuPy's array", "cupyx softmax"): 1.0}
        self.compare("out" if into else "softmax", calls, expected, aims)

    def triton_softmax(self, x, into):
        import triton_kernels

        return triton_kernels.softmax(self.torch, x, into)

    def cupy_softmax(self, x):
        import cupy
        from cupyx.scipy import special

        kiln, array = self.kiln, cupy.from_dlpack(x)
        return [("cupyx softmax", lambda: special.softmax(array, axis=-1)),
                ("kiln.softmax, CuPy's array", lambda: kiln.softmax(array))]

    def norm(self, name):
        torch, kiln = self.torch, self.kiln
        x, parameters = self.rand(ROWS, COLUMNS), [self.rand(COLUMNS)]
        if name == "layer_norm":
            parameters.append(self.rand(COLUMNS))
        function = getattr(torch.nn.functional, name)
        mine = getattr(kiln, name)
        arguments = dict(eps=1e-5)
        expected = function(x.double(), (COLUMNS,), *[p.double() for p in parameters], **arguments)
        theirs = f"F.{name}"

        def call(*tensors):
            return function(tensors[0], (COLUMNS,), *tensors[1:], **arguments)

        calls = [(theirs, lambda: function(x, (COLUMNS,), *parameters, **arguments)),
                 (f"kiln.{name}", lambda: mine(x, (COLUMNS,), *parameters, **arguments))]
        calls += self.compiled(call, x, *parameters)
        aims = {(f"kiln.{name}", theirs): 0.8, (f"kiln.{name}", "torch.compile"): 1 / 3}
        self.compare(name, calls, expected, aims)

    def permute(self):
        torch, kiln = self.torch, self.kiln
        x = self.rand(16, 64, 64)
        expected = x.double().permute(0, 2, 1)
        calls = [("permute().contiguous()", lambda: x.permute(0, 2, 1).contiguous()),
                 ("kiln.permute", lambda: kiln.permute(x, (0, 2, 1)))]
        calls += self.compiled(lambda x: x.permute(0, 2, 1).contiguous(), x)
        if "cupy" in self.beside:
            cupy = self.modules["cupy"]
            array = cupy.from_dlpack(x)
            calls.append(("CuPy", lambda: cupy.ascontiguousarray(array.transpose(0, 2, 1))))
        aims = {("kiln.permute", "permute().contiguous()"): None,
                ("kiln.permute", "torch.compile"): 1 / 3}
        self.compare("permute", calls, expected, aims)

    def autograd(self):
        torch, kiln = self.torch, self.kiln
        module, wrong = find("kiln.torch")
        if module is None:
            self.table.say(wrong)
        x = self.rand(ROWS, COLUMNS).requires_grad_()
        weight, bias = self.rand(COLUMNS).requires_grad_(), self.rand(COLUMNS).requires_grad_()
        f, shape = torch.nn.functional, (COLUMNS,)
        pairs = [
            ("softmax", lambda: torch.softmax(x, -1), lambda: kiln.softmax(x)),
            ("layer_norm", lambda: f.layer_norm(x, shape, weight, bias),
             lambda: kiln.layer_norm(x, shape, weight, bias)),
            ("rms_norm", lambda: f.rms_norm(x, shape, weight, 1e-5),
             lambda: kiln.rms_norm(x, shape, weight, eps=1e-5)),
        ]
        with torch.enable_grad():
            for name, theirs, mine in pairs:
                who, of = f"kiln.{name}, recording", f"torch's {name}, recording"
                with torch.no_grad():
                    expected = theirs().double()
                self.compare("autograd", [(of, theirs), (who, mine)], expected, {(who, of): 1.5})

    def raw(self):
        torch, kiln = self.torch, self.kiln
        x = self.rand(ROWS * COLUMNS)
        count, grid, block = x.numel(), (x.numel() // 256,), (256,)
        contenders = []
        if hasattr(kiln, "RawKernel"):
            mine, y = kiln.RawKernel(SOURCE, "add"), torch.empty_like(x)

            def ours():
                mine(grid, block, (x, y, count))
                return y

            contenders.append(("kiln.RawKernel", ours))
        else:
            self.table.say("raw: this kiln has no RawKernel")
        if "cupy" in self.beside:
            cupy = self.modules["cupy"]
            theirs, a = cupy.RawKernel(SOURCE, "add"), cupy.from_dlpack(x)
            b = cupy.empty_like(a)

            def others():
                theirs(grid, block, (a, b, count))
                return b

            contenders.append(("CuPy's RawKernel", others))
        if contenders:
            self.compare("raw", contenders, x.double() + 1,
                         {("kiln.RawKernel", "CuPy's RawKernel"): 1.0})

    def daemon(self):
        """On memory that is lent, in the order of torch's stream: the daemon launches."""
        torch, kiln = self.torch, self.kiln
        x = self.rand(ROWS, COLUMNS)
        y, expected = torch.empty_like(x), torch.softmax(x.double(), -1)
        if not self.gpu:
            self.table.say("daemon: tensors of the host are copied, none is lent")
            return
        kiln.connect(mode="daemon")
        try:
            with kiln.lend(x), kiln.lend(y):
                self.compare("daemon", [("kiln.softmax(x, out=y), mode daemon",
                                         lambda: kiln.softmax(x, out=y))], expected, {})
        finally:
            kiln.connect()

    # ---- Fresh processes ----

    def fresh(self, source, count, seconds=60):
        """Medians over fresh processes of what each prints; None, once it was said, on failure."""
        rows = []
        for _ in range(count):
            got, wrong = child(["-c", source], self.options.daemon.variables, seconds)
            if wrong or not got:
                self.table.fail(f"a fresh process: {wrong or 'it printed nothing'}")
                return None
            rows += got
        return {key: median([row[key] for row in rows]) for key in rows[0]}

    def import_(self):
        for module in ["kiln", "numpy"]:
            got = self.fresh(IMPORT.format(module=module), 3 if self.options.quick else 7)
            if got:
                self.table.row("import", f"import {module}", got["all"], "ms",
                               aim=30 if module == "kiln" else None)

    def first(self):
        count = 1 if self.options.quick or not self.gpu else 3
        self.kiln.softmax(self.rand(ROWS, COLUMNS))
        self.wait()
        got = self.fresh(FIRST.format(device=self.device, load="import kiln",
                                      call="kiln.softmax(x)"), count)
        if got:
            self.table.row("first", "import kiln and kiln.softmax, its result", got["all"], "ms",
                           aim=20)
            self.table.row("first", "of this, import kiln", got["load"], "ms")
        got = self.fresh(FIRST.format(device=self.device, load="", call="torch.softmax(x, -1)"),
                         count)
        if got:
            self.table.row("first", "torch.softmax, its result", got["all"], "ms")

    def miss(self):
        """The daemon's generic kernels are there; who calls must not wait for a compile."""
        kiln, daemon = self.kiln, self.options.daemon
        kiln.softmax(self.rand(ROWS, COLUMNS))
        before = daemon.info()["counters"]
        draw = random.Random(16)
        shapes = [(draw.randrange(3, 200), c)
                  for c in draw.sample(range(33, 6000), 4 if not self.gpu else 40)]
        firsts, again = [], []
        for shape in shapes:
            x = self.rand(*shape)
            for times in [firsts, again]:
                self.wait()
                began = time.perf_counter()
                y = kiln.softmax(x)
                self.wait()
                times.append((time.perf_counter() - began) * 1e3)
            if not self.torch.allclose(y.double(), self.torch.softmax(x.double(), -1), 1e-4, 1e-5):
                self.table.fail(f"miss: softmax of {shape} disagrees with float64")
        after = daemon.info()["counters"]
        rows = [(f"first calls of {len(shapes)} shapes never seen, median", median(firsts), "ms"),
                ("the same, worst", max(firsts), "ms"),
                ("the calls after them, median", median(again), "ms")]
        for row in rows:
            self.table.row("miss", *row)
        compiles = after["compiles"] - before["compiles"]
        self.table.row("miss", "compiles that a call waited for", compiles, "", aim=0)
        self.table.row("miss", "calls begun by a generic kernel", after["generic"] - before["generic"],
                       "")

    def run(self, section):
        calls = {"import": self.import_, "softmax": self.softmax, "out": lambda: self.softmax(True),
                 "layer_norm": lambda: self.norm("layer_norm"),
                 "rms_norm": lambda: self.norm("rms_norm"), "permute": self.permute,
                 "autograd": self.autograd, "raw": self.raw,
                 "daemon": self.daemon, "first": self.first, "miss": self.miss}
        self.table.section(section)
        with self.torch.no_grad():
            calls[section]()


def listed(text, known, parser):
    names = [name for name in text.split(",") if name not in ("", "none")]
    for name in names:
        if name not in known:
            parser.error(f"unknown {name!r}; known: {', '.join(known)}")
    return names


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=["cuda", "cpu"])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", default=",".join(SECTIONS))
    parser.add_argument("--beside", default=",".join(BESIDE))
    parser.add_argument("--seconds", type=float, default=90)
    parser.add_argument("--cache")
    parser.add_argument("--json")
    options = parser.parse_args()
    options.only = listed(options.only, SECTIONS, parser)
    options.beside = listed(options.beside, BESIDE, parser)
    began = time.monotonic()
    options.daemon = Daemon(options.cache)
    options.daemon.apply()
    torch, wrong = find("torch")
    kiln, wrong = find("kiln") if torch else (None, wrong)
    if not kiln:
        print(f"bench_python: {wrong}", file=sys.stderr)
        sys.exit(77)
    if options.device is None:
        options.device = "cuda" if torch.cuda.is_available() else "cpu"
    if options.device == "cuda" and not torch.cuda.is_available():
        parser.error("--device cuda: torch sees no GPU")
    options.table = Table("bench_python", options.json, options.device)
    print(f"kiln {kiln.__version__}, torch {torch.__version__}, device {options.device}; "
          f"{ROWS}x{COLUMNS} f32")
    bench = Bench(options, torch, kiln)
    kiln.softmax(bench.rand(ROWS, COLUMNS))
    if options.device == "cuda":
        options.table.say(f"waited {settle(options.daemon, 60):.1f} s for generic kernels")
    for section in SECTIONS:
        if section not in options.only:
            continue
        if time.monotonic() - began > options.seconds:
            options.table.say(f"{section} is left out: {options.seconds:.0f} s are over")
            continue
        try:
            bench.run(section)
        except kiln.Error as error:
            options.table.fail(f"{section}: {error}")
    sys.exit(options.table.end())


if __name__ == "__main__":
    main()
