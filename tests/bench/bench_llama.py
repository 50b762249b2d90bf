#!/usr/bin/env python3
"""bench_llama: a Llama of transformers with random weights: eager, torch.compile, kiln.patch(model).

  python3 bench_llama.py [--device cuda|cpu] [--quick] [--ways eager,kiln,compile] [--processes 8]
                         [--once] [--seconds N] [--json FILE]

Each way runs in a fresh process, first with empty caches ("cold": Kiln's daemon does not run yet),
then once more with what is there by then ("warm").  A process makes the model and its context, then:

  first     the first training step, from a model that is on the device to an updated one
  train     tokens a second of training steps of one length, peak memory, the losses of five steps
  lengths   steps of lengths never seen: what the first of each takes beyond its repetition, after
            a model that no way has touched has seen the length, too
  prompts   the same of forward calls that record nothing
  generate  greedy generation with a cache of keys and values: tokens a second

Losses must agree with those of eager: the model and its data are the same.  At last so many
processes of the way kiln begin at once on an empty cache, and the daemon says how many kernels it
compiled and how many there are.

--ways       which of the three
--processes  how many begin at once; 0: none
--once       each way with empty caches alone
--seconds    what would begin later is left out, what runs then is ended; default 120 with --quick

Exit status: 0, 1 losses disagree or a process failed, 2 usage, 77 transformers or torch is missing.
"""
import argparse
import importlib.metadata
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import time

from python_bench import Daemon, Table, child, collect, find, first_line, median, settle

WAYS = ["eager", "kiln", "compile"]
LOSSES = 5
SIZES = {  # hidden, inner, layers, heads, heads of keys, words, batch, length
    "cpu": (64, 128, 1, 4, 2, 256, 2, 24),
    "quick": (1024, 2816, 4, 16, 4, 8192, 4, 512),
    "whole": (2048, 5632, 12, 32, 8, 32000, 4, 1024),
}
# Losses may differ by such a part: five updates by AdamW make more of each rounding.
AGREE = {"cuda": 2e-2, "cpu": 1e-4}
UNSEEN = {"cpu": [17, 29], "quick": [97, 131, 203, 257, 311, 389], "whole":
          [97, 131, 203, 257, 311, 389, 449, 521, 613, 701, 769, 907]}


WAIT = 120  # seconds that processes which begin at once wait for each other


def await_file(folder, pattern, count, seconds):
    """Waits until so many files of a folder have such a name; false after so many seconds."""
    until = time.monotonic() + seconds
    while len(list(folder.glob(pattern))) < count:
        if time.monotonic() > until:
            return False
        time.sleep(0.005)
    return True


# ---- In a process of its own ----

class Model:
    def __init__(self, options):
        import torch
        import transformers

        self.torch, self.options = torch, options
        self.device, self.size = options.device, SIZES[options.size]
        hidden, inner, layers, heads, keys, words, self.batch, self.length = self.size
        torch.manual_seed(16)
        self.config = transformers.LlamaConfig(
            hidden_size=hidden, intermediate_size=inner, num_hidden_layers=layers,
            num_attention_heads=heads, num_key_value_heads=keys, vocab_size=words,
            max_position_embeddings=2048, bos_token_id=0, eos_token_id=None, pad_token_id=0)
        self.words, self.layers, self.twin = words, layers, None
        self.model = self.make()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4)
        self.data = torch.Generator().manual_seed(17)
        self.began = time.perf_counter()
        if options.child == "kiln":
            import kiln

            report("patched", " ".join(str(kiln.patch(self.model)).split())[:2000])
        elif options.child == "compile":
            self.model.compile()
        self.wait()

    def make(self):
        import transformers

        dtype = self.torch.bfloat16 if self.device == "cuda" else self.torch.float32
        return transformers.LlamaForCausalLM(self.config).to(self.device, dtype).train()

    def wait(self):
        if self.device == "cuda":
            self.torch.cuda.synchronize()

    def tokens(self, length):
        draw = self.torch.randint(1, self.words, (self.batch, length), generator=self.data)
        return draw.to(self.device)

    def step(self, tokens):
        loss = self.model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    def timed(self, function, *arguments):
        """Milliseconds until the result is there, and the result."""
        self.wait()
        began = time.perf_counter()
        result = function(*arguments)
        self.wait()
        return (time.perf_counter() - began) * 1e3, result

    def first(self):
        self.fixed = [self.tokens(self.length) for _ in range(LOSSES)]
        _, loss = self.timed(self.step, self.fixed[0])
        report("first_ms", (time.perf_counter() - self.began) * 1e3)
        losses = [loss] + [self.step(tokens) for tokens in self.fixed[1:]]
        report("losses", [loss.item() for loss in losses])

    def train(self):
        count = 3 if self.device == "cpu" else 12
        tokens = self.fixed[0]
        self.step(tokens)
        times = [self.timed(self.step, tokens)[0] for _ in range(count)]
        report("step_ms", median(times))
        report("train_tokens_s", self.batch * self.length * 1e3 / median(times))
        if self.device == "cuda":
            report("peak_mib", self.torch.cuda.max_memory_allocated() / 2**20)

    def lengths(self):
        def step(tokens):
            self.twin(input_ids=tokens, labels=tokens).loss.backward()
            self.twin.zero_grad(set_to_none=True)

        self.unseen("beyond_ms", self.step, step, 0)

    def prompts(self):
        def forward(tokens):
            with self.torch.no_grad():
                return self.model(input_ids=tokens).logits

        def before(tokens):
            with self.torch.no_grad():
                self.twin(input_ids=tokens)

        forward(self.tokens(self.length))
        self.unseen("prompt_beyond_ms", forward, before, 1)

    def unseen(self, name, function, before, more):
        """What the first call of each length takes beyond its repetition, when a model that is as
        transformers made it has seen the length: cuBLAS has loaded its kernels then."""
        beyond = []
        self.twin = self.twin or self.make()
        for length in UNSEEN[self.options.size]:
            tokens = self.tokens(length + more)
            before(tokens)
            first, _ = self.timed(function, tokens)
            again = median([self.timed(function, tokens)[0] for _ in range(3)])
            beyond.append(first - again)
            report(name, beyond)

    def generate(self):
        count = 4 if self.device == "cpu" else 48
        self.model.eval()
        prompt = self.tokens(16)

        def run():
            with self.torch.no_grad():
                return self.model.generate(prompt, attention_mask=self.torch.ones_like(prompt),
                                           max_new_tokens=count, min_new_tokens=count,
                                           do_sample=False)

        first, words = self.timed(run)
        report("generate_first_ms", first)
        took = median([self.timed(run)[0] for _ in range(1 if self.device == "cpu" else 5)])
        if words.shape != (self.batch, 16 + count):
            raise AssertionError(f"{count} words were asked for: {tuple(words.shape)}")
        report("generate_tokens_s", self.batch * count * 1e3 / took)


def report(name, value):
    print(json.dumps({"figure": name, "value": value}), flush=True)


def run_child(options):
    if options.at:
        # All are ready before the first begins.
        import torch
        import transformers  # noqa: F401

        torch.zeros(1, device=options.device)
        pathlib.Path(options.at, f"ready.{os.getpid()}").touch()
        if not await_file(pathlib.Path(options.at), "go", 1, WAIT):
            sys.exit(f"nobody said go for {WAIT} s")
    model, failed = Model(options), []
    for part in options.parts.split(","):
        try:
            getattr(model, part)()
        except Exception as error:  # a part that fails leaves the others their figures
            failed.append(part)
            print(f"{part}: {type(error).__name__}: {first_line(error)}", file=sys.stderr)
    if failed:
        sys.exit(f"{', '.join(failed)} failed; see above")


# ---- All of them ----

class Bench:
    def __init__(self, options):
        self.options, self.table = options, options.table
        self.until = time.monotonic() + options.seconds
        self.daemons, self.losses = {}, None

    def left(self):
        return self.until - time.monotonic()

    def arguments(self, way, parts, *more):
        options = self.options
        return [__file__, "--device", options.device, "--size", options.size, "--child", way,
                "--parts", parts, *more]

    def run(self, way, again):
        """One process: its figures by name."""
        table, name = self.table, f"{way}, {'warm' if again else 'cold'}"
        if self.left() < 5:
            table.say(f"{name} is left out: {self.options.seconds:.0f} s are over")
            return
        if way not in self.daemons:
            self.daemons[way] = Daemon()
        parts = ["first"] if again else ["first", "train", "lengths", "prompts", "generate"]
        if way == "kiln" and not importlib.util.find_spec("kiln.torch"):
            table.say(f"{name}: this kiln has no kiln.torch, so it trains nothing")
            parts = ["generate"] if again else ["prompts", "generate"]
        rows, wrong = child(self.arguments(way, ",".join(parts)), self.daemons[way].variables,
                            min(self.left(), self.options.most))
        figures = {row["figure"]: row["value"] for row in rows}
        if wrong:
            over = wrong.startswith("ended after")
            (table.say if over else table.fail)(f"{name}: {wrong}")
        self.show(way, name, figures)
        return figures

    def show(self, way, name, figures):
        table = self.table
        if "patched" in figures:
            table.say(f"{name}: patched {figures['patched']}")
        for figure, text, unit in [
                ("first_ms", "first training step of a fresh process", "ms"),
                ("step_ms", "a training step, median", "ms"),
                ("train_tokens_s", "training", "tok/s"),
                ("generate_first_ms", "first generation", "ms"),
                ("generate_tokens_s", "generation", "tok/s"),
                ("peak_mib", "peak of torch's memory", "MiB")]:
            if figure in figures:
                eager = self.eager.get(figure) if way != "eager" else None
                self.faster(name, figure, text, unit, figures[figure], eager)
        for figure, text in [("beyond_ms", "steps"), ("prompt_beyond_ms", "prompts")]:
            if figure not in figures:
                continue
            beyond = figures[figure]
            table.row(figure, f"{name}: worst of {len(beyond)} {text} of unseen lengths, beyond a "
                      "seen one", max(beyond), "ms", aim=1 if way == "kiln" else None)
            table.row(figure, f"{name}: the median of these", median(beyond), "ms")
        if "losses" in figures:
            self.agree(name, figures["losses"])

    def faster(self, name, figure, text, unit, value, eager):
        """A rate should be no less than eager's: the aim is for eager's over it."""
        self.table.row(figure, f"{name}: {text}", value, unit, eager, None, "eager")
        if figure.endswith("tokens_s") and eager and name.startswith("kiln"):
            self.table.row(figure, f"{name}: eager's rate of {text} over it", eager / value, "",
                           aim=1.0)

    def agree(self, name, losses):
        if self.losses is None and name.startswith("eager"):
            self.losses = losses
        if self.losses is None:
            self.table.say(f"{name}: eager's losses are not there to compare with")
            return
        apart = max(abs(a - b) / abs(b) for a, b in zip(losses, self.losses, strict=True))
        self.table.row("losses", f"{name}: {LOSSES} losses, the most they differ from eager's",
                       apart, "")
        if not apart <= AGREE[self.options.device]:
            self.table.fail(f"{name}: losses {losses} and eager's {self.losses} disagree")

    def together(self):
        """So many at once, on an empty cache: the daemon compiles each kernel once."""
        count, table = self.options.processes, self.table
        if self.left() < 10:
            table.say(f"{count} at once are left out: {self.options.seconds:.0f} s are over")
            return
        daemon = Daemon()
        part, figure, text = "first", "first_ms", "first training step"
        if not importlib.util.find_spec("kiln.torch"):
            table.say("this kiln has no kiln.torch: they generate, and train nothing")
            part, figure, text = "generate", "generate_first_ms", "first generation"
        processes = [subprocess.Popen(
            [sys.executable, *self.arguments("kiln", part, "--at", daemon.folder)], text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env=dict(os.environ, **daemon.variables)) for _ in range(count)]
        folder = pathlib.Path(daemon.folder)
        if not await_file(folder, "ready.*", count, min(WAIT, self.left())):
            table.say(f"not all of {count} were ready in time")
        folder.joinpath("go").touch()
        firsts = []
        for process in processes:
            rows, wrong = collect(process, self.left())
            if wrong:
                table.fail(f"one of {count} at once: {wrong}")
            figures = {row["figure"]: row["value"] for row in rows}
            firsts += [figures[figure]] if figure in figures else []
            if "losses" in figures:
                self.agree(f"one of {count} at once", figures["losses"])
        info = daemon.info()
        if firsts:
            table.row("together", f"{count} at once: {text}, worst", max(firsts), "ms")
        if not info:
            table.fail("no daemon answers after they ended")
        else:
            settle(daemon, 5)
            info = daemon.info()
            jobs, rows = info["counters"]["jobs_done"], info["cache"]["rows"]
            table.row("together", f"{count} at once: kernels in the cache", rows, "")
            table.row("together", f"{count} at once: compiles for each", jobs / max(1, rows), "",
                      aim=1.0)
        daemon.end()

    def all(self):
        self.eager = {}
        for way in self.options.ways:
            self.table.section(way)
            if way == "kiln" and not self.options.patch:
                self.table.say("this kiln has no patch(): its way is left out")
                continue
            figures = self.run(way, False)
            if way == "eager":
                self.eager = figures or {}
            elif not self.options.once:
                self.run(way, True)
            if way == "kiln" and self.options.processes:
                self.table.section(f"{self.options.processes} processes at once")
                self.together()
        for daemon in self.daemons.values():
            daemon.end()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=["cuda", "cpu"])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--once", action="store_true")
    parser.add_argument("--json")
    for hidden in ["--child", "--parts", "--size"]:
        parser.add_argument(hidden, help=argparse.SUPPRESS)
    parser.add_argument("--at", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        run_child(options)
        return
    options.ways = [way for way in options.ways.split(",") if way]
    for way in options.ways:
        if way not in WAYS:
            parser.error(f"unknown way {way!r}; known: {', '.join(WAYS)}")
    if options.seconds is None:
        options.seconds = 120 if options.quick else 600
    options.most = options.seconds / 2
    for name in ["torch", "transformers"]:
        if not importlib.util.find_spec(name):
            print(f"bench_llama: there is no {name} here", file=sys.stderr)
            sys.exit(77)
    if options.device is None:
        import torch

        options.device = "cuda" if torch.cuda.is_available() else "cpu"
    options.size = "cpu" if options.device == "cpu" else "quick" if options.quick else "whole"
    options.table = Table("bench_llama", options.json, options.device)
    kiln, wrong = find("kiln")
    if not kiln:
        options.table.say(wrong)
    options.patch = hasattr(kiln, "patch")
    versions = [f"{name} {importlib.metadata.version(name)}" for name in ["torch", "transformers"]]
    print(f"{', '.join(versions)}, device {options.device}; hidden, inner, layers, heads, heads "
          f"of keys, words, batch, length: {SIZES[options.size]}")
    Bench(options).all()
    sys.exit(options.table.end())


if __name__ == "__main__":
    main()
