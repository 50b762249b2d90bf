#!/usr/bin/env python3
"""opinfo: Kiln's operators on device cpu, compared with PyTorch on the samples of its own tests.

  KILND=kilnd LIBKILN=libkiln.so build/venv-torch/bin/python opinfo.py
      [--exact | --generic] [--all] [--seed N] [--only WORD] [--list]

Draws samples from PyTorch's OpInfo for all that Kiln's operators and its statements can say, in
every dtype that both have, lays them out in memory in several ways, and runs them by a daemon of
its own.  Each is compared, or must be refused by the sentence that is expected for it: a dtype that
is no float, an output of another dtype than x, a row of rank 0, an eps below 0, a sum over nothing.

--exact    by exact kernels, which is the default
--generic  by generic ones
--all      every sample; otherwise, by seed, the first few of each operator and dtype
--seed N   which samples (1)
--only WORD  operators with WORD in their name
--list     prints what the samples are and runs nothing

Exit status: 0 all right, 1 something is wrong, 2 usage.
"""
import argparse
import collections
import os
import queue
import random
import re
import sys
import threading
import time
import warnings

import torch
from torch.testing._internal.common_methods_invocations import op_db

import case
import elements
import kiln
import places
import randoms
import rows
import sums

DTYPES = [torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64,
          torch.float16, torch.bfloat16, torch.float32, torch.float64]
EACH = 1  # samples of an operator and a dtype; the generic kernels get others than the exact ones
INNER = 1  # sizes of the random statements; the generic kernels get another
SHOWN = 20
STATEMENTS = {*elements.ROWS, *sums.NAMES, *places.STATEMENTS}


def full_name(info):
    return info.name + ("/" + info.variant_test_name if info.variant_test_name else "")


def builders(name):
    """What makes cases of an OpInfo's samples."""
    found = []
    if name in elements.ROWS:
        found.append(("", elements.build))
    if name in sums.NAMES:
        found.append(("", sums.build))
    if name in places.NAMES:
        found.append(("", places.build))
    if name in rows.NAMES:
        found.append(("", rows.build))
    if name in rows.GRADIENTS:
        found.append((" backward", rows.build_gradient))
    if name in places.GRADIENTS:
        found.append((" backward", places.build_gradient))
    return found


class Draw:
    """The cases, one after the other, and how many samples make none."""

    def __init__(self, options):
        self.options = options
        self.left_out = collections.Counter()
        self.made = set()
        self.seed = f"{options.seed}/{'generic' if options.generic else 'exact'}"

    def samples(self, info, dtype, seed):
        torch.manual_seed(seed)
        try:
            return list(info.sample_inputs("cpu", dtype, requires_grad=False))
        except (RuntimeError, NotImplementedError, TypeError):
            return []  # PyTorch has none in this dtype

    def of_operator(self, info, dtype):
        name = full_name(info)
        for suffix, build in builders(name):
            chance = random.Random(f"{self.seed}/{name}{suffix}/{dtype}")
            samples = self.samples(info, dtype, chance.getrandbits(32))
            chance.shuffle(samples)
            taken = 0
            for sample in samples:
                if taken == EACH and not self.options.all:
                    break
                try:
                    made = build(name, info.op, sample, chance, case.relayout)
                except (RuntimeError, NotImplementedError) as error:
                    # Nothing to compare with: PyTorch does not compute it either.
                    if not re.search(r"not implemented|not support|only support|ZeroDivision",
                                     str(error)):
                        raise
                    made = None
                if made is None:
                    self.left_out[name] += 1
                    continue
                taken += 1
                self.made.add(name + suffix)
                made.label = f"{name}{suffix} {kiln.dtype_name(dtype)}"
                yield made

    def of_integers(self):
        chance = random.Random(f"{self.seed}/integers")
        count = 8 if self.options.all else INNER
        for label, build in randoms.cases(chance, case.relayout, count):
            if self.options.only not in label:
                continue
            made = build()
            made.label = label
            yield made

    def of_masks(self):
        chance = random.Random(f"{self.seed}/masks")
        torch.manual_seed(chance.getrandbits(32))
        for label, made in rows.own(chance, case.relayout):
            if self.options.only not in label:
                continue
            made.label = label
            yield made

    def dtypes(self, info):
        """Every other one with the exact kernels, and the others with the generic ones; of
        statements, which have no generic kernels and are each a compile, every eighth; then more
        until one has a sample."""
        if self.leaves_out(full_name(info)):
            return
        found = [dtype for dtype in DTYPES if dtype in info.dtypes]
        if self.options.all:
            yield from found
            return
        each = 8 if full_name(info) in STATEMENTS else 2
        first = random.Random(f"{self.options.seed}/{full_name(info)}").randrange(each)
        yield from found[(first + self.options.generic) % each::each]
        for dtype in found:
            if full_name(info) not in self.made:
                yield dtype

    def all(self):
        yield from self.of_integers()
        yield from self.of_masks()
        for info in op_db:
            if self.options.only not in full_name(info):
                continue
            for dtype in self.dtypes(info):
                yield from self.of_operator(info, dtype)

    def leaves_out(self, name):
        """Statements have no generic kernels: the run by exact ones has them."""
        return self.options.generic and not self.options.all and name in STATEMENTS

    def missing(self):
        """Names of which no sample became a case: the tables or PyTorch have changed."""
        wanted = {name for table in (elements.ROWS, sums.NAMES, places.NAMES, rows.NAMES)
                  for name in table}
        wanted |= {name + " backward" for table in (rows.GRADIENTS, places.GRADIENTS)
                   for name in table}
        return sorted(name for name in wanted - self.made if self.options.only in name and
                      not self.leaves_out(name.removesuffix(" backward")))


class Count:
    """What became of the cases; the threads share it."""

    def __init__(self):
        self.lock = threading.Lock()
        self.counts = collections.Counter()
        self.operators = collections.Counter()
        self.said = time.monotonic()

    def note(self, made, result, words):
        expected = made.refusal and re.search(made.refusal, words or "")
        if result == "refused" and not expected:
            result = "wrong"
        elif result == "compared" and made.refusal:
            result, words = "wrong", f"it was to be refused (/{made.refusal}/)"
        with self.lock:
            self.counts[result] += 1
            self.operators[made.label] += 1
            if result == "wrong" and self.counts["wrong"] <= SHOWN:
                print(f"WRONG {made}\n      {words}", flush=True)
            if time.monotonic() - self.said > 10:
                self.said = time.monotonic()
                print(f"  {sum(self.counts.values())} done, at {made.label}", flush=True)


def work(client, todo, count):
    while True:
        made = todo.get()
        if made is None:
            break
        try:
            count.note(made, *made.run(client))
        except Exception as error:  # the thread that draws must not wait for ever
            count.note(made, "wrong", f"{type(error).__name__}: {error}")
    client.close()


def run(options, draw, count):
    library = kiln.load(os.environ["LIBKILN"])
    daemon = kiln.Daemon(os.environ["KILND"], "never" if options.generic else "eager")
    try:
        daemon.wait()
        todo = queue.Queue(64)
        clients = [kiln.Client(library, daemon.socket)
                   for _ in range(1 + len(os.sched_getaffinity(0)))]
        threads = [threading.Thread(target=work, args=(client, todo, count)) for client in clients]
        for thread in threads:
            thread.start()
        try:
            for made in draw.all():
                todo.put(made)
        finally:
            for _ in threads:
                todo.put(None)
            for thread in threads:
                thread.join()
    finally:
        words = daemon.end()
    for line in words:
        print("kilnd:", line)


def read_options():
    parser = argparse.ArgumentParser(add_help=False)
    for name in ("exact", "generic", "all", "list"):
        parser.add_argument("--" + name, action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="")
    parser.add_argument("-h", "--help", action="store_true")
    options = parser.parse_args()
    if options.help:
        print(__doc__.strip())
        sys.exit(0)
    options.all = options.all or bool(os.environ.get("KILN_TEST_ALL"))
    return options


def main():
    options = read_options()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    began = time.monotonic()
    draw, count = Draw(options), Count()
    if options.list:
        for made in draw.all():
            print(made)
        return 0
    run(options, draw, count)
    counts = count.counts
    for name in draw.missing():
        counts["wrong"] += 1
        print(f"WRONG {name}: no sample of it was one to compare")
    print(f"  {sum(draw.left_out.values())} samples of {len(draw.left_out)} operators are nothing "
          f"that Kiln's operators say")
    way = "generic" if options.generic else "exact"
    print(f"result: PyTorch, {way} kernels, {len(count.operators)} pairs of operator and dtype, "
          f"{time.monotonic() - began:.0f} s: {counts['compared']} compared, "
          f"{counts['refused']} refused as expected, {counts['wrong']} wrong")
    return 1 if counts["wrong"] or not counts["compared"] else 0


if __name__ == "__main__":
    sys.exit(main())
