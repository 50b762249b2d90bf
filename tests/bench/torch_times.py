#!/usr/bin/env python3
"""torch_times: what PyTorch takes for the cases of bench_kernels.

  bench_kernels --list | python3 torch_times.py [--seconds N] [--workers N] [--device cuda]
      [--liger] > times

Reads the cases (JSON, a line each), writes "name TAB eager TAB compiled TAB liger" in microseconds,
0 for what was not measured; a later line of the same name replaces an earlier one.  All cases eagerly
first, with --liger by Liger-Kernel, too, where it has the operator, then with torch.compile as long
as there is time, operators in turn.  torch_operators.py says what stands for each operator.  Measured
as bench_kernels does: an event before and one behind each launch, launches queued behind a pause of
the device, buffers in turn, medians.  Eager and compiled must agree, or no time of torch.compile is
given.

A kernel that PyTorch does not have is replaced by the formula, eagerly.
Before the compiled times, worker processes compile everything into PyTorch's cache on disk, several
at once.  What they found out about speed is thrown away: they were not alone on the device.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import liger_operators
import torch_operators
from torch_operators import DTYPES

POOL = 1536 << 20
MOST_SETS = 32
LAUNCHES = 40
ENOUGH_US = 25000
PAUSE_CYCLES = 16_000_000
COMPARED = 1 << 22  # elements, of the beginning and of the end
TOLERANCE = {"float16": 4e-3, "bfloat16": 3e-2, "float32": 1e-4, "float64": 1e-9,
             "float8_e4m3fn": 0.13, "float8_e5m2": 0.26}


def say(*words):
    print("torch_times:", *words, file=sys.stderr, flush=True)


# ---- Operands ----

def flat_values(torch, device, operand, count):
    """count elements in memory, as the operand's fill wants them."""
    dtype, fill = getattr(torch, DTYPES[operand["dtype"]]), operand["fill"]
    columns = operand["shape"][-1] if operand["shape"] else 1
    if fill == "flags":
        return torch.randint(0, 2, (count,), device=device).to(dtype)
    if fill == "indices":
        return torch.randint(0, max(1, operand["most"]), (count,), device=device).to(dtype)
    if fill == "slots":  # each once at most
        return torch.randperm(operand["most"], device=device)[:count].to(dtype)
    if fill in ("boxes", "targets"):
        boxes = torch.rand(count // 4, 2, 2, device=device).cumsum(1)
        if fill == "targets":  # some pairs do not count
            boxes[::8] = 0
        return (boxes * (1 if dtype.is_floating_point else 100)).flatten().to(dtype)
    if fill == "lengths":
        return torch.randint(0, operand["most"] + 1, (count,), device=device).to(dtype)
    if fill == "bits" or not dtype.is_floating_point:
        element = torch.empty(0, dtype=dtype).element_size()
        most = 2 if dtype == torch.bool else 256
        return torch.randint(0, most, (count * element,), dtype=torch.uint8,
                             device=device).view(dtype)
    if fill in ("probable", "logarithm") and count % columns == 0:
        rows = torch.randn(count // columns, columns, device=device, dtype=torch.float32)
        make = torch.softmax if fill == "probable" else torch.log_softmax
        return make(rows, -1).to(dtype).flatten()
    wide = torch.float32 if torch.finfo(dtype).bits == 8 else dtype
    return torch.randn(count, device=device, dtype=wide).to(dtype)


def tensor(torch, device, operand, empty=False):
    shape, strides = operand["shape"], operand["strides"]
    count = sum((size - 1) * stride for size, stride in zip(shape, strides)) + 1
    if empty:
        flat = torch.empty(count, device=device, dtype=getattr(torch, DTYPES[operand["dtype"]]))
    else:
        flat = flat_values(torch, device, operand, count)
    return flat.as_strided(shape, strides)


def inputs(torch, device, case, empty=False):
    """The inputs that are there, by name."""
    made = {name: tensor(torch, device, operand, empty)
            for name, operand in case["operands"].items() if operand and not operand["output"]}
    if "rstd" in made:
        made["rstd"] = made["rstd"].abs() + 0.5
    return made


# ---- Time ----

class Bench:
    def __init__(self, torch, device):
        self.torch, self.device = torch, device

    def sets(self, case):
        """Sets of inputs that take turns."""
        torch = self.torch
        first = inputs(torch, self.device, case)
        size = sum(t.numel() * t.element_size() for t in first.values())
        count = min(MOST_SETS, max(1, POOL // max(1, size))) if case["big"] else 1
        return [first] + [inputs(torch, self.device, case) for _ in range(count - 1)]

    def once(self, function, arguments, launches):
        torch = self.torch
        if self.device == "cpu":
            times = []
            for i in range(launches):
                begin = time.perf_counter()
                function(*arguments[i % len(arguments)])
                times.append((time.perf_counter() - begin) * 1e6)
            return times
        begins = [torch.cuda.Event(enable_timing=True) for _ in range(launches)]
        ends = [torch.cuda.Event(enable_timing=True) for _ in range(launches)]
        torch.cuda._sleep(PAUSE_CYCLES)
        kept = []
        for i in range(launches):
            begins[i].record()
            kept.append(function(*arguments[i % len(arguments)]))
            ends[i].record()
            if len(kept) > 3:
                kept.pop(0)
        torch.cuda.synchronize()
        return [begin.elapsed_time(end) * 1000 for begin, end in zip(begins, ends)]

    def median_us(self, function, arguments):
        about = sorted(self.once(function, arguments, 3))[1]
        launches = int(min(LAUNCHES, max(5, ENOUGH_US / max(about, 1))))
        times = sorted(self.once(function, arguments, launches))
        return times[len(times) // 2]

    def agree(self, a, b, arguments):
        """Whether a and b are the same but for roundings, of arguments' types at the coarsest: what
        is fused is not rounded between its steps."""
        torch = self.torch
        coarsest = max((TOLERANCE.get(str(t.dtype).split(".")[-1], 0) for t in arguments
                        if t.element_size() > 1), default=0)
        a, b = (t if isinstance(t, tuple) else (t,) for t in (a, b))
        for x, y in zip(a, b, strict=True):
            x, y = x.flatten(), y.flatten()
            tolerance = TOLERANCE.get(str(x.dtype).split(".")[-1])
            if tolerance:
                tolerance = max(tolerance, coarsest)
                x, y = (x.float(), y.float()) if x.element_size() == 1 else (x, y)
            for part in (slice(0, COMPARED), slice(-COMPARED, None)):
                if not x.dtype.is_floating_point:
                    if not torch.equal(x[part].view(torch.uint8), y[part].view(torch.uint8)):
                        return False
                    continue
                scale = y[part].nan_to_num(0, 0, 0).abs().max().item()
                if not torch.allclose(x[part], y[part], rtol=tolerance,
                                      atol=tolerance * max(scale, 1e-3), equal_nan=True):
                    return False
        return True

    def reset(self):
        self.torch._dynamo.reset()
        if self.device != "cpu":
            self.torch.cuda.empty_cache()


def first_line(error):
    return (str(error).splitlines() or [type(error).__name__])[0][:200]


def prepare(bench, case):
    """The functions, and for each the arguments of every set."""
    sets = bench.sets(case)
    eager, names, plain, plain_names = [torch_operators.functions(bench.torch, case, t) for t in sets][0]
    arguments = [[t[name] for name in names] for t in sets]
    plain_arguments = [[t[name] for name in plain_names] for t in sets]
    try:
        eager(*arguments[0])
    except (RuntimeError, NotImplementedError, AttributeError) as error:
        # A kernel that this PyTorch or device does not have.
        say(f"{case['name']}: the formula instead: {first_line(error)}")
        eager, arguments = plain, plain_arguments
    return eager, arguments, plain, plain_arguments


def time_eager(bench, case):
    eager, arguments, _, _ = prepare(bench, case)
    return bench.median_us(eager, arguments)


def time_liger(bench, case):
    found = liger_operators.function(bench.torch, case)
    if not found:
        return 0.0
    names, run = found
    return bench.median_us(run, [[t[name] for name in names] for t in bench.sets(case)])


def time_compiled(bench, case):
    eager, arguments, plain, plain_arguments = prepare(bench, case)
    function = bench.torch.compile(plain, dynamic=False)
    if not bench.agree(function(*plain_arguments[0]), eager(*arguments[0]), arguments[0]):
        raise RuntimeError("torch.compile and eager disagree")
    return bench.median_us(function, plain_arguments)


# ---- All ----

def in_turn(cases):
    """One of each operator, then the next of each."""
    by_op = {}
    for case in cases:
        by_op.setdefault(case["op"], []).append(case)
    longest = max(map(len, by_op.values()), default=0)
    return [rows[i] for i in range(longest) for rows in by_op.values() if i < len(rows)]


def warm(bench, cases, share, shares, deadline):
    """A worker: compiles its share into the cache on disk."""
    for case in in_turn(cases)[share::shares]:
        if time.monotonic() > deadline:
            return
        try:
            tensors = inputs(bench.torch, bench.device, case, empty=True)
            _, _, plain, names = torch_operators.functions(bench.torch, case, tensors)
            bench.torch.compile(plain, dynamic=False)(*(tensors[name] for name in names))
            del tensors
            bench.reset()
        except Exception as error:  # the one that times it says so, too
            say(f"{case['name']}: {first_line(error)}")


def run_workers(options, lines, seconds):
    start = time.monotonic()
    workers = []
    for i in range(options.workers):
        command = [sys.executable, __file__, "--device", options.device, "--seconds",
                   str(seconds), "--warm", f"{i}/{options.workers}"]
        workers.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
                                        text=True))
    for worker in workers:
        try:
            worker.communicate("".join(lines), timeout=max(1, start + 1.5 * seconds + 20
                                                           - time.monotonic()))
        except (subprocess.TimeoutExpired, BrokenPipeError):
            worker.kill()
            worker.wait()
    for path in pathlib.Path(os.environ["TORCHINDUCTOR_CACHE_DIR"]).rglob("*.best_config"):
        path.unlink()
    say(f"{options.workers} processes compiled for {time.monotonic() - start:.0f} s")


def time_case(time_one, bench, case, what):
    """Its median in microseconds, 0 where there is none."""
    micros = 0.0
    try:
        micros = time_one(bench, case)
    except Exception as error:  # what a backend cannot do is no reason to stop
        say(f"{case['name']}: {what}: {first_line(error)}")
    bench.reset()
    return micros


def run(options, lines, bench, cases, start):
    eager, liger = {}, {}
    for case in cases:
        name = case["name"]
        eager[name] = time_case(time_eager, bench, case, "eager")
        liger[name] = time_case(time_liger, bench, case, "Liger") if options.liger else 0.0
        print(f"{name}\t{eager[name]:.2f}\t0.00\t{liger[name]:.2f}", flush=True)
    say(f"{len(cases)} cases eagerly in {time.monotonic() - start:.0f} s")
    left = options.seconds - (time.monotonic() - start)
    if options.workers > 1 and left > 20:
        run_workers(options, lines, left / 2)
    reached = 0
    for case in in_turn(cases):
        if time.monotonic() - start > options.seconds:
            break
        reached += 1
        name = case["name"]
        compiled = time_case(time_compiled, bench, case, "torch.compile")
        print(f"{name}\t{eager[name]:.2f}\t{compiled:.2f}\t{liger[name]:.2f}", flush=True)
    say(f"{reached} of {len(cases)} cases reached with torch.compile, "
        f"{time.monotonic() - start:.0f} s")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=150, help="torch.compile ends after so long")
    parser.add_argument("--workers", type=int, default=min(6, max(1, (os.cpu_count() or 1) // 2)))
    parser.add_argument("--device", default="cuda", help="cpu: to try this program out")
    parser.add_argument("--liger", action="store_true", help="times Liger-Kernel's, too")
    parser.add_argument("--warm", help=argparse.SUPPRESS)
    options = parser.parse_args()
    start = time.monotonic()
    if "TORCHINDUCTOR_CACHE_DIR" in os.environ:
        work(options, start)
        return
    with tempfile.TemporaryDirectory(prefix="torch-times-") as directory:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = directory
        work(options, start)


def work(options, start):
    import torch
    if options.device == "cuda" and not torch.cuda.is_available():
        sys.exit("torch_times: this PyTorch sees no GPU")
    lines = sys.stdin.readlines()
    cases = [case for case in map(json.loads, lines)
             if case["op"] in torch_operators.OPERATORS
             and all(o is None or o["dtype"] in DTYPES for o in case["operands"].values())]
    bench = Bench(torch, options.device)
    if options.warm:
        share, shares = map(int, options.warm.split("/"))
        warm(bench, cases, share, shares, start + options.seconds)
    else:
        run(options, lines, bench, cases, start)


if __name__ == "__main__":
    main()
