#!/usr/bin/env python3
"""torch_permute: what PyTorch takes for the cases of bench_permute.

  bench_permute --list | python3 torch_permute.py [--seconds N] > times

Reads the cases (name, dtype, shape, perm, strides, large), writes "name TAB eager TAB compiled" in
microseconds, 0 for what was not measured.  Measured as bench_permute does: an event before and one
behind each launch, launches queued behind a pause of the device, buffers in turn, medians.
"""
import argparse
import sys
import time

DTYPES = {
    "f16": "float16", "bf16": "bfloat16", "f32": "float32", "f64": "float64", "i8": "int8",
    "u8": "uint8", "i16": "int16", "i32": "int32", "i64": "int64", "bool": "bool",
    "c64": "complex64", "c128": "complex128",
}
POOL = 1536 << 20
LAUNCHES = 40


def numbers(text):
    return [int(word) for word in text.split(",")] if text else []


def source(torch, dtype, shape, strides):
    """A tensor of random bytes with these strides."""
    last = sum((size - 1) * stride for size, stride in zip(shape, strides)) + 1
    element = torch.empty(0, dtype=dtype).element_size()
    flat = torch.randint(0, 256, (last * element,), dtype=torch.uint8, device="cuda")
    return flat.view(dtype).as_strided(shape, strides)


def median_us(torch, function, tensors):
    """The median time of one call, launches queued back to back."""
    for tensor in tensors[:3]:
        function(tensor)
    torch.cuda.synchronize()
    begins = [torch.cuda.Event(enable_timing=True) for _ in range(LAUNCHES)]
    ends = [torch.cuda.Event(enable_timing=True) for _ in range(LAUNCHES)]
    torch.cuda._sleep(16_000_000)
    kept = []
    for i in range(LAUNCHES):
        begins[i].record()
        kept.append(function(tensors[i % len(tensors)]))
        ends[i].record()
        if len(kept) > 4:
            kept.pop(0)
    torch.cuda.synchronize()
    times = sorted(begin.elapsed_time(end) * 1000 for begin, end in zip(begins, ends))
    return times[len(times) // 2]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=150,
                        help="torch.compile is left out for the cases after so long")
    options = parser.parse_args()
    import torch
    if not torch.cuda.is_available():
        sys.exit("torch_permute: this PyTorch sees no GPU")
    start = time.monotonic()
    for line in sys.stdin:
        name, kind, shape, perm, strides, large = line.rstrip("\n").split("\t")
        if kind not in DTYPES:
            continue
        dtype, shape, perm = getattr(torch, DTYPES[kind]), numbers(shape), numbers(perm)
        first = source(torch, dtype, shape, numbers(strides))
        bytes_each = first.numel() * first.element_size()
        sets = min(32, max(1, POOL // bytes_each)) if large == "1" else 1
        tensors = [first] + [source(torch, dtype, shape, numbers(strides))
                             for _ in range(sets - 1)]

        def eager(tensor):
            return tensor.permute(perm).contiguous()

        eager_us = median_us(torch, eager, tensors)
        compiled_us = 0.0
        if time.monotonic() - start < options.seconds:
            try:
                torch._dynamo.reset()
                compiled = torch.compile(eager, dynamic=False)
                if not torch.equal(compiled(first).view(torch.uint8),
                                   eager(first).view(torch.uint8)):
                    raise RuntimeError("torch.compile and eager disagree")
                compiled_us = median_us(torch, compiled, tensors)
            except Exception as error:  # a backend that cannot is no reason to stop
                print(f"torch_permute: {name}: {str(error).splitlines()[0]}", file=sys.stderr)
        print(f"{name}\t{eager_us:.2f}\t{compiled_us:.2f}", flush=True)
        del tensors, first
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
