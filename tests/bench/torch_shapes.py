#!/usr/bin/env python3
"""torch_shapes: what the first call of a shape takes in PyTorch, for the problems of bench_shapes.

  bench_shapes --list --count 500 | python3 torch_shapes.py [--processes 4] [--seconds N]
                                                            [--device cuda] [--json FILE]

Reads the problems (JSON, a line each) and shares them out to so many processes, as bench_shapes does.
Each runs them with torch.compile(dynamic=True), one function for each operator: once, which is the
first call of that shape, and a few times more; each is waited for.  The same eagerly, for
comparison: those kernels are all there.  What is not reached within the seconds is left out.
"""
import argparse
import json
import multiprocessing
import os
import statistics
import sys
import tempfile
import time

REPEATS = 9
SETTLE = 2


def functions(torch):
    def softmax(x):
        return torch.softmax(x, -1)

    def permute(x):
        return x.permute(0, 2, 1).contiguous()

    def layer_norm(x, gamma, beta):
        return torch.nn.functional.layer_norm(x, x.shape[-1:], gamma, beta)

    return {"softmax": softmax, "permute": permute, "layer_norm": layer_norm}


def measure(torch, device, way, problems, until):
    """Pairs of first and repeated call, us; the first call of an operator apart."""
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    table = functions(torch)
    if way == "compiled":
        table = {op: torch.compile(f, dynamic=True) for op, f in table.items()}
    begun, results = set(), {"first of an operator": [], "first": [], "again": []}
    for problem in problems:
        if time.monotonic() > until:
            break
        dtype = {"f16": torch.float16, "f32": torch.float32}[problem["dtype"]]
        shape, op = problem["shape"], problem["op"]
        arguments = [torch.randn(shape, device=device, dtype=dtype)]
        if op == "layer_norm":
            arguments += [torch.randn(shape[-1], device=device, dtype=dtype) for _ in range(2)]
        times = []
        wait()
        for _ in range(1 + SETTLE + REPEATS):
            began = time.perf_counter()
            table[op](*arguments)
            wait()
            times.append((time.perf_counter() - began) * 1e6)
        kind = (op, problem["dtype"])
        results["first" if kind in begun else "first of an operator"].append(times[0])
        results["again"].append(statistics.median(times[1 + SETTLE:]))
        begun.add(kind)
    return results


def work(number, device, way, problems, seconds, begin, results):
    # Each begins with an empty cache, as the daemon does.
    with tempfile.TemporaryDirectory() as cache:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = cache
        os.environ["TRITON_CACHE_DIR"] = os.path.join(cache, "triton")
        import torch

        torch._dynamo.config.cache_size_limit = 4096
        torch.zeros(1, device=device)
        begin.wait()
        results.put(measure(torch, device, way, problems, time.monotonic() + seconds))


def percentile(values, part):
    values = sorted(values)
    return values[min(len(values) - 1, int(part * len(values)))]


def report(way, name, values, out):
    if not values:
        return
    figures = [percentile(values, part) for part in (0.5, 0.99)] + [max(values)]
    print("  %-34s %11.1f %11.1f %11.1f  of %d" % (name, *figures, len(values)))
    if out:
        row = {"program": "torch_shapes", "figure": "%s, %s" % (way, name), "shapes": len(values)}
        row.update(zip(("p50_us", "p99_us", "worst_us"), figures))
        out.write(json.dumps(row) + "\n")


def run(options, way, problems, out):
    context = multiprocessing.get_context("spawn")
    begin, results = context.Barrier(options.processes), context.Queue()
    share = (len(problems) + options.processes - 1) // options.processes
    crew = [
        context.Process(
            target=work,
            args=(i, options.device, way, problems[i * share:(i + 1) * share],
                  options.seconds / 2, begin, results))
        for i in range(options.processes)
    ]
    for process in crew:
        process.start()
    parts = [results.get(timeout=options.seconds + 120) for _ in crew]
    for process in crew:
        process.join()
    print("%s:" % way)
    whole = {name: sum((part[name] for part in parts), []) for name in parts[0]}
    report(way, "first call of an operator and type", whole["first of an operator"], out)
    report(way, "first call of a shape", whole["first"], out)
    report(way, "repeated call", whole["again"], out)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=200)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--json")
    options = parser.parse_args()
    problems = [json.loads(line) for line in sys.stdin if line.strip()]
    print("%d processes, %d shapes in all; us %21s %11s %11s" %
          (options.processes, len(problems), "p50", "p99", "worst"))
    out = open(options.json, "a") if options.json else None
    run(options, "eager", problems, out)
    run(options, "compiled", problems, out)
    if out:
        out.close()


if __name__ == "__main__":
    main()
