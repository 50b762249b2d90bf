"""python_bench.py: what bench_python and bench_llama share: a daemon of their own, tables with aims."""
import atexit
import importlib
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

_FOLDER = "KILN_BENCH_FOLDER"


class Daemon:
    """Where a daemon has its socket and cache.  The first call of kiln starts it; end() ends it.

    A process that the benchmark starts finds the same daemon by its environment.
    """

    def __init__(self, cache=None):
        self.folder = tempfile.mkdtemp(prefix="kiln-bench-")
        self.variables = {_FOLDER: self.folder, "KILN_SOCKET": f"{self.folder}/kiln.sock",
                          "KILN_CACHE_DIR": cache or f"{self.folder}/cache",
                          "TORCHINDUCTOR_CACHE_DIR": f"{self.folder}/inductor",
                          "TRITON_CACHE_DIR": f"{self.folder}/triton"}
        if os.environ.get("KILND"):
            self.variables["KILN_DAEMON"] = os.environ["KILND"]
        atexit.register(self.end)

    def apply(self):
        """Makes it the daemon of this process, before kiln connects."""
        os.environ.update(self.variables)

    def info(self):
        """What it counts; None where none answers."""
        import kiln

        client = kiln.Client(socket=self.variables["KILN_SOCKET"], autostart=False, timeout=10)
        try:
            return client.request("info", section="all")
        except kiln.Error:
            return None
        finally:
            client.close()

    def end(self):
        """Ends it, waits for that at most ten seconds, and removes its folder."""
        if not os.path.isdir(self.folder):
            return
        info = self.info() if "kiln" in sys.modules else None
        if info:
            os.kill(info["server"]["pid"], signal.SIGTERM)
            deadline = time.monotonic() + 10
            while os.path.exists(self.variables["KILN_SOCKET"]) and time.monotonic() < deadline:
                time.sleep(0.02)
        shutil.rmtree(self.folder, ignore_errors=True)


def settle(daemon, seconds):
    """Waits until the daemon's generic kernels are there and nothing is compiled; the seconds."""
    began = time.monotonic()
    while time.monotonic() - began < seconds:
        info = daemon.info()
        if info and not info["tiers"]["warming"] and not info["busy"]["compiling"]:
            break
        time.sleep(0.1)
    return time.monotonic() - began


def find(name):
    """A module, or None and why."""
    try:
        return importlib.import_module(name), None
    except ImportError as error:
        return None, f"{name} is left out: {first_line(error)}"


def first_line(error):
    """What an exception says, in one line."""
    return (str(error).splitlines() or [type(error).__name__])[0][:200]


def child(arguments, variables, seconds, **more):
    """Runs Python with these variables; rows of JSON from its output, and why it failed, or None."""
    process = subprocess.Popen([sys.executable, *arguments], text=True, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, env=dict(os.environ, **variables), **more)
    return collect(process, seconds)


def collect(process, seconds):
    """Waits for a child, for so many seconds at most."""
    wrong = None
    try:
        out, err = process.communicate(timeout=max(0.1, seconds))
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        wrong = f"ended after {seconds:.0f} s"
    rows = []
    for line in (out or "").splitlines():
        if line.startswith("{"):
            try:
                rows.append(json.loads(line))
            except ValueError:
                pass  # the line in which it was killed
    if wrong is None and process.returncode != 0:
        last = [line for line in (err or "").splitlines() if line.strip()][-4:]
        wrong = f"exit status {process.returncode}: {' / '.join(last)[-600:]}"
    return rows, wrong


class Table:
    """Figures as they come: to the terminal in columns, to a file as JSON, a line each."""

    def __init__(self, program, path, device):
        self.program, self.device = program, device
        self.judged, self.missed, self.failed = 0, 0, 0
        self.out = open(path, "a") if path else None

    def section(self, title):
        print(f"\n{title}", flush=True)

    def say(self, text):
        """What was left out, and why."""
        print(f"  {text}", flush=True)
        self._json({"note": text})

    def fail(self, text):
        self.failed += 1
        print(f"  FAILED: {text}", flush=True)
        self._json({"failed": text})

    def row(self, section, name, value, unit, beside=None, aim=None, of=None):
        """A figure; `beside` what it is compared with (named by `of`), and the most it should be.

        With `beside` the aim is for the quotient, without for the figure.
        """
        ratio = value / beside if beside else None
        judged = ratio if beside else value
        verdict = ""
        if aim is not None and self.device != "cpu":
            met = judged <= aim
            self.judged += 1
            self.missed += not met
            verdict = f"aim {aim:g}: {'met' if met else 'missed'}"
        text = f"{ratio:8.3f} of {of}" if ratio is not None else ""
        print(f"  {name:<52} {value:>11.3f} {unit:<5} {text:<34} {verdict}".rstrip(), flush=True)
        row = {"section": section, "figure": name, "value": round(value, 4), "unit": unit}
        if ratio is not None:
            row.update(beside=of, ratio=round(ratio, 4))
        if verdict:
            row.update(aim=aim, met=met)
        self._json(row)

    def _json(self, row):
        if self.out:
            self.out.write(json.dumps(dict({"program": self.program, "device": self.device}, **row)))
            self.out.write("\n")
            self.out.flush()

    def end(self):
        """Exit status: 1 where a result was wrong or a program failed."""
        if self.device == "cpu":
            print("\naims are those of a GPU, and were not judged on the cpu")
        else:
            print(f"\n{self.judged - self.missed} of {self.judged} aims met")
        if self.failed:
            print(f"{self.failed} failed")
        return 1 if self.failed else 0


median = statistics.median
