#!/usr/bin/env python3
"""metrics.py dashboard DASHBOARD RULES PAGE | http ADDRESS [ACCEPT] | firing URL NAME...

dashboard: every query of a dashboard and of a file of rules names metrics that the table of the page
has, with labels that they have.  http: prints what the daemon answers.  firing: waits until
Prometheus says that these alerts fire.
"""

import json
import re
import sys
import time
import urllib.request

DERIVED = {"histogram": ("_bucket", "_sum", "_count")}
BUILT_IN = {"job", "instance", "le"}


def table(page):
    """Name of a sample -> its labels."""
    found = {}
    for name, kind, labels in re.findall(
            r"^\| `(kiln_\w+)` \| (\w+) \| \w* \| ([\w, ]*) \|", open(page).read(), re.M):
        for ending in DERIVED.get(kind, ("",)):
            found[name + ending] = set(labels.replace(",", " ").split()) | BUILT_IN
    return found


def check(where, text, known):
    for name, labels in re.findall(r"\b(kiln_\w+)(?:\{([^}]*)\})?", text):
        if name not in known:
            yield "%s: there is no metric %s" % (where, name)
            continue
        for label in re.findall(r"(\w+)\s*=", labels):
            if label not in known[name]:
                yield "%s: %s has no label %s" % (where, name, label)
    for labels in re.findall(r"\bby \(([^)]*)\)", text):
        for label in labels.replace(",", " ").split():
            if not any(label in known.get(name, ()) for name in re.findall(r"\bkiln_\w+", text)):
                yield "%s: nothing there has a label %s" % (where, label)


def dashboard(board, rules, page):
    known = table(page)
    wrong, count = [], 0
    for panel in json.load(open(board))["panels"]:
        for target in panel["targets"]:
            count += 1
            wrong += check(panel["title"], target["expr"], known)
            for label in re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]):
                wrong += check(panel["title"], "sum by (%s) (%s)" % (label, target["expr"]), known)
    for expression in re.findall(r"expr: (.*)", open(rules).read()):
        count += 1
        wrong += check(rules, expression, known)
    if len(known) < 30 or count < 20:
        wrong.append("%d metrics and %d queries were found" % (len(known), count))
    return wrong


def get(address, accept=""):
    request = urllib.request.Request("http://%s/metrics" % address, headers={"Accept": accept})
    with urllib.request.urlopen(request, timeout=10) as answer:
        return answer.headers["Content-Type"], answer.read().decode()


def firing(url, *names):
    end, seen = time.monotonic() + 30, {}
    while time.monotonic() < end:
        try:
            with urllib.request.urlopen(url + "/api/v1/alerts", timeout=5) as answer:
                alerts = json.load(answer)["data"]["alerts"]
            seen = {alert["labels"]["alertname"]: alert["state"] for alert in alerts}
            if all(seen.get(name) == "firing" for name in names):
                return []
        except OSError:
            pass
        time.sleep(0.1)
    return ["not firing: %s" % seen]


def main(what, *arguments):
    if what == "http":
        kind, text = get(*arguments)
        print("# " + kind)
        sys.stdout.write(text)
        return []
    return {"dashboard": dashboard, "firing": firing}[what](*arguments)


if __name__ == "__main__":
    findings = main(*sys.argv[1:])
    print("\n".join(findings), end="")
    sys.exit(bool(findings))
