#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""deploy/monitoring: every query of the board and of the alerts, by promtool, over the pages that our programs serve.
And docs/metrics.md: the types and labels that it says are those of these pages.

The pages become series of promtool's unit tests, with the labels that Prometheus adds. A query must yield something, an
alert must not fire over them, and must over series in which something is wrong.
"""

import sys

for folder in ("", "node"):
    sys.path.insert(0, __file__.rsplit("/", 2)[0] + "/" + folder)
import monitor as node_side  # noqa: E402

del sys.modules["api"]
sys.path.insert(0, __file__.rsplit("/", 2)[0] + "/scheduler")
from support import *  # noqa: E402
import metrics_page  # noqa: E402

FOLDER = SOURCE / "deploy/monitoring"
SAMPLE = re.compile(r"(\w+)(?:\{(.*)\})? (\S+)")
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
NAME = re.compile(r"\bhami_\w+")
SCHEDULER = {"job": "hami-scheduler", "instance": "10.0.0.1:9395"}
MONITOR = {"job": "hami-vgpu-monitor", "instance": "10.0.0.2:9394", "node": node_side.NODE}
WHOSE = 'namespace="ns",pod="one",container="main"'
BOUND, CARD = "hami_scheduler_binds_total", 'node="node-1",device_uuid="GPU-0"'

# What makes each alert fire, as series of an hour by the minute.
WRONG = {
    "HamiSchedulerAbsent": {'up{job="hami-scheduler"}': "0+0x60"},
    "HamiSchedulerBlind": {'hami_scheduler_watch_age_seconds{resource="pods"}': "0+60x60"},
    "HamiBindsFail": {f'{BOUND}{{outcome="failed"}}': "0+30x60", f'{BOUND}{{outcome="done"}}': "0+60x60"},
    "HamiFiltersSlow": {
        'hami_scheduler_request_duration_seconds_bucket{verb="filter",le="0.05"}': "0+10x60",
        'hami_scheduler_request_duration_seconds_bucket{verb="filter",le="0.25"}': "0+60x60",
        'hami_scheduler_request_duration_seconds_bucket{verb="filter",le="+Inf"}': "0+60x60",
    },
    "HamiReservationsStuck": {"hami_scheduler_reservations": "3+0x60", f'{BOUND}{{outcome="done"}}': "7+0x60"},
    "HamiMonitorDown": {'up{job="hami-vgpu-monitor",instance="a"}': "0+0x60"},
    "HamiDriverSilent": {'hami_monitor_nvml_up{node="node-1"}': "0+0x60"},
    "HamiCardUnhealthy": {f"hami_host_gpu_healthy{{{CARD}}}": "0+0x60"},
    "HamiDevicesBypassed": {'hami_bypasses_total{node="node-1",kind="no-slot"}': "0+1x60"},
    "HamiComparisonDown": {'hami_monitor_comparison_up{node="node-1"}': "0+0x60"},
    "HamiMemoryRefused": {f"hami_container_memory_refusals_total{{{WHOSE}}}": "0+1x60"},
    "HamiThrottled": {f"hami_container_throttled_seconds_total{{{WHOSE}}}": "0+40x60"},
    "HamiCardOvercommitted": {f"hami_gpu_memory_allocated_bytes{{{CARD}}}": "40+0x60", f"hami_gpu_memory_limit_bytes{{{CARD}}}": "30+0x60"},
    "HamiContainerUnknown": {'hami_monitor_nameless_containers{node="node-1"}': "1+0x60"},
}


def scheduler_page():
    api = Api()
    api.set(NODES, node("node-1", 2))
    scheduler = Scheduler(api)
    place(scheduler, api.set(PODS, pod(3000, 20)), ["node-1"])
    scheduler.filter(pod(100 * CARD_MIB), ["node-1"])
    check(scheduler.sees_what_is(), "a pod with a share is there")
    page = scheduler.metrics()
    scheduler.end()
    return page


def monitor_page():
    machine = Machine(1, 30000 * MIB)
    uuid = machine.view()["gpus"][0]["uuid"]
    metadata = {"name": "one", "namespace": "ns", "uid": "uid-1", "resourceVersion": "1"}
    api = node_side.Api(objects={PODS: {"one": {"metadata": metadata, "spec": {"nodeName": node_side.NODE}}}})
    box = node_side.Container(scratch / "vgpu", "uid-1", "main", uuid)
    card = {"uuid": uuid, "model": "A100", "index": 0, "numa_node": -1, "healthy": True, "memory_bytes": 1, "failures": 0, "why": ""}
    (scratch / "vgpu/cards.json").write_text(json.dumps({"cards": [card]}))
    (scratch / "proc").mkdir()
    served = node_side.Monitor(machine, api, scratch / "vgpu", f"--procfs={scratch}/proc")
    guest = box.start(machine, "--memory", "1G", "--hold")
    used = {"namespace": "ns", "pod": "one"}
    seen = wait_until(lambda: node_side.value(served.scrape(), "hami_vgpu_memory_used_bytes", **used) not in (0, []), 20)
    check(seen and wait_until(lambda: served.scrape().get("hami_host_gpu_healthy") and node_side.value(served.scrape(), "hami_monitor_comparison_up") == 1, 20), "a container that uses a card is there")
    page = served.get("/metrics")[1]
    guest.kill()
    api.close()
    return page


def series_of(page, target):
    """{series as text: value}; what a sample says of itself stays, as honorLabels has it."""
    found = {}
    for line in page.splitlines():
        if got := SAMPLE.fullmatch(line):
            labels = target | dict(LABEL.findall(got[2] or ""))
            found[got[1] + "{" + ",".join(f'{k}="{v}"' for k, v in labels.items()) + "}"] = float(got[3])
    return found


def check_document(program, page):
    """A histogram's buckets have a label beside those of the family."""
    rows = metrics_page.of_page(SOURCE)[program]
    served = dict(re.findall(r"^# TYPE (\w+) (\w+)$", page, re.M))
    check_equal({name: kind for name, kind in served.items() if rows.get(name, [None])[0] != kind}, {}, f"docs/metrics.md has the types of {program}'s metrics")
    wrong = {}
    for name, labels, _ in (got.groups() for got in map(SAMPLE.fullmatch, page.splitlines()) if got):
        name, found = re.sub("_(bucket|sum|count)$", "", name) if name not in served else name, {label for label, _ in LABEL.findall(labels or "")}
        if name not in rows or found - {"le"} != rows[name][1]:
            wrong[name] = found
    check_equal(wrong, {}, f"and its labels of {program}'s samples")


def inner(name, after):
    """The text of a manifest below a line, with its own indentation only."""
    lines = (FOLDER / name).read_text().split(after, 1)[1].splitlines()
    depth = min(len(line) - len(line.lstrip()) for line in lines if line.strip())
    return "\n".join(line[depth:] for line in lines) + "\n"


def queries_of(board):
    """(where, expression, labels that the legend names)"""
    for panel in board["panels"]:
        for target in panel["targets"]:
            expression = re.sub(r"\$(node|namespace)\b", ".+", target["expr"])
            yield panel["title"], expression, re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])


def alerts_of(rules):
    return re.findall(r"- alert: (\w+)\n\s+expr: (.+)\n", rules)


def check_words(where, expression, legend, series):
    """Names of metrics, and the labels to group by or to write, are on the pages."""
    names = set(NAME.findall(expression))
    known = {name: [set(dict(LABEL.findall(s))) for s in series if s.startswith(name + "{")] for name in names}
    check(all(known.values()), f"{where}: its metrics are served", [name for name, labels in known.items() if not labels])
    wanted = set(legend) | {word.strip() for group in re.findall(r"by \(([^)]*)\)", expression) for word in group.split(",")}
    lacking = {name: wanted - set.union(*labels) for name, labels in known.items() if labels and wanted - set.union(*labels)}
    check(not lacking, f"{where}: so are its labels", lacking)


def run_promtool(rules, tests):
    """Runs promtool's unit tests; each is (sentence, {series: values}, [(expression, wanted number)])."""
    (scratch / "rules.yaml").write_text(rules)
    for sentence, series, expressions in tests:
        unit = {
            "rule_files": [str(scratch / "rules.yaml")],
            "evaluation_interval": "1m",
            "tests": [{
                "interval": "1m",
                "input_series": [{"series": name, "values": values} for name, values in series.items()],
                "promql_expr_test": [
                    {"expr": expression, "eval_time": "55m", "exp_samples": [{"labels": "{}", "value": wanted}]}
                    for expression, wanted in expressions
                ],
            }],
        }  # fmt: skip
        (scratch / "unit.yaml").write_text(json.dumps(unit))
        ended = subprocess.run(["promtool", "test", "rules", scratch / "unit.yaml"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        check(ended.returncode == 0, sentence, ended.stdout[-1500:])


def firing(alert):
    return f'(count(ALERTS{{alertname="{alert}",alertstate="firing"}}) > bool 0) or vector(0)'


def some(expression):
    return f"(count({expression}) > bool 0) or vector(0)"


def main():
    if not check(shutil.which("promtool"), "promtool is installed (Debian: prometheus)"):
        finish()
    pages = {"hami-scheduler": scheduler_page(), "hami-vgpu-monitor": monitor_page()}
    for program, page in pages.items():
        check_document(program, page)
    series = series_of(pages["hami-scheduler"], SCHEDULER) | series_of(pages["hami-vgpu-monitor"], MONITOR)
    up = {f'up{{job="{target["job"]}",instance="{target["instance"]}"}}': 1.0 for target in (SCHEDULER, MONITOR)}
    still = {name: f"{value:g}+0x60" for name, value in (series | up).items()}
    moving = {name: f"{value:g}+{int('_total{' in name or '_bucket{' in name)}x60" for name, value in (series | up).items()}
    rules, board = inner("rules.yaml", "\nspec:\n"), json.loads(inner("dashboard.yaml", "hami.json: |\n"))
    (scratch / "rules.yaml").write_text(rules)
    ended = subprocess.run(["promtool", "check", "rules", scratch / "rules.yaml"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    check(ended.returncode == 0, "promtool takes the rules", ended.stdout)

    alerts, queries = alerts_of(rules), list(queries_of(board))
    check_equal({name for name, _ in alerts}, set(WRONG), "each alert has series here that make it fire")
    for where, expression, legend in queries + [(name, expression, []) for name, expression in alerts]:
        check_words(where, expression, legend, series)
    asked = [re.fullmatch(r"label_values\((\w+), (\w+)\)", v["query"]).groups() for v in board["templating"]["list"] if v["type"] == "query"]
    for name, label in asked:
        check(any(s.startswith(name + "{") and label in dict(LABEL.findall(s)) for s in series), f"the board's choice of {label} is served")

    tests = [(f"the board's {title!r} shows something", moving, [(some(e), 1)]) for title, e, _ in queries]
    tests.append(("no alert fires over what our programs serve", still, [(firing(name), 0) for name, _ in alerts]))
    for name, _ in alerts:
        tests.append((f"{name} fires when it should", WRONG[name], [(firing(name), 1)]))
    run_promtool(rules, tests)
    text = (FOLDER / "servicemonitor.yaml").read_text()
    check_equal(text.count("honorLabels: true"), text.count("kind: ServiceMonitor"), "each ServiceMonitor keeps the labels that samples have")
    finish()


main()
