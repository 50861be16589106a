"""Writes the figures of a run into README.md and docs/performance.md, between two marks."""
import re
import statistics

from . import machine
from .earlier import EARLIER
from .report import cpu_text, heading, target_text, text

BEGIN, END = "<!-- bench: begin -->", "<!-- bench: end -->"
SHORT = ("rest-json", "rest-binary", "grpc-streams", "grpc", "latency-json", "big-onnx-rest", "batching", "convolutional",
         "load", "updates-1", "start-demo")
NAMES = {"millrace": "Millrace", "triton": "Triton"}
MAIN = {"latency": "p50", "load": "seconds", "updates": "worst", "start": "ready"}  # the figure of rows that begin so; of others the rate
UNITS = {"rate": "{}/s", "cpu": "{} CPU", "p50": "p50 {}", "rss": "{}", "batch": "batches of {}", "reads": "{} reads",
         "writes": "{} writes", "polls": "{} polls", "other calls": "{} other calls", "threads": "threads: {}",
         "peak": "peak {}", "kept": "{} of it kept", "health": "health {}", "worst": "longest wait {}", "p99.9": "p99.9 {}",
         "load": "loads in {}", "rss growth": "{} × after the first update"}
BESIDE = ("millrace, busy polling", "millrace, seen before", "millrace, plain", "millrace, by gRPC", "triton, by gRPC",
          "nginx", "nghttpd", "copy loop", "ONNX Runtime")


def main_figure(row):
    return MAIN.get(row["key"].split("-")[0], "rate")


def figures_text(row, contender, figures):
    found = row["contenders"].get(contender, {})
    return ", ".join(UNITS.get(f, "{}").format(text(f, found[f]["median"])) for f in figures if f in found)


def main_cell(row, contender):
    extra = {"p50": ("cpu",), "seconds": ("cpu", "rss"), "worst": ("p99.9", "load", "rss"),
             "ready": ("rss",)}.get(main_figure(row), ("cpu", "batch", "kept"))
    cell = figures_text(row, contender, (main_figure(row), *extra)).removeprefix("p50 ")
    if not cell and contender == "triton" and row["key"] in EARLIER:
        return f"not in this run; measured earlier: {EARLIER[row['key']]}"
    return cell or "–"


def targets_cell(row):
    found = []
    for t in row["targets"]:
        _, value, bound, verdict = target_text(t)
        figure = "" if t["beside"] and t["figure"] == main_figure(row) else f"{heading(t['figure'])} "
        beside = f" × {NAMES.get(t['beside'], t['beside'])}" if t["beside"] else ""
        who = "" if t["who"] == "millrace" else t["who"].removeprefix("millrace, ") + " "
        said = f"{who}{figure}{value}{beside} (target {bound})"
        found.append(f"**missed: {said}**" if verdict == "NOT MET" else said if t["met"] else f"{said}: not judged")
    return "; ".join([*found, *filter(None, [cpu_text(row).replace("triton", "Triton")])])


def is_comparison(row):
    """Of whole servers, in one figure."""
    return "millrace" in row["contenders"] and set(row["contenders"]) <= {"millrace", "triton", *BESIDE} and \
        main_figure(row) in row["contenders"]["millrace"]


def table(headings, rows):
    return "\n".join("| " + " | ".join(cells) + " |" for cells in [headings, ["---"] * len(headings), *rows])


def long_tables(rows):
    compared = [[r["title"], main_cell(r, "millrace"), main_cell(r, "triton"),
                 "; ".join(f"{b.removeprefix('millrace, ')} {main_cell(r, b)}" for b in BESIDE if b in r["contenders"]) or "–", targets_cell(r)]
                for r in rows if is_comparison(r)]
    others = []
    for r in rows:
        if is_comparison(r):
            continue
        said = []
        for name, found in r["contenders"].items():
            shown = [f for f in found if f not in ("p99", "switches")]
            if r["key"] == "instructions":
                if name == "millrace":
                    said.append("; ".join(f"{f}: {text(f, found[f]['median'])}" for f in shown))
            else:
                said.append(f"{NAMES.get(name, name)}: {figures_text(r, name, shown)}")
        others.append([r["title"], "<br>".join(said), targets_cell(r) if r["key"] != "instructions" else ""])
    tables = [(["Workload", "Millrace", "Triton", "Beside", "Ratios"], compared), (["What", "Figures", "Targets"], others)]
    return "\n\n".join(table(headings, found) for headings, found in tables if found)


def short_table(rows):
    chosen = [r for key in SHORT for r in rows if r["key"] == key]
    return table(["Workload", "Millrace", "Triton", "Millrace ÷ Triton", "its CPU"], [
        [r["title"], main_cell(r, "millrace"), main_cell(r, "triton"), ratio(r, main_figure(r)), ratio(r, "cpu")]
        for r in chosen])


def ratio(row, figure):
    both = [row["contenders"].get(s, {}).get(figure) for s in ("millrace", "triton")]
    if not all(both):
        return "–"
    return f"{statistics.median(a / b for a, b in zip(both[0]['rounds'], both[1]['rounds'])):.2f}"


def made_by(run):
    m, v = run["machine"], run["versions"]
    versions = ", ".join(f"{NAMES.get(k, k)} {v[k]}" for k in v if v[k] and k != "millrace")
    return (f"{run['rounds']} rounds of {run['seconds']} s on {m['date']}; {m['cpu']}, {m['cpus']} CPUs, Linux "
            f"{m['kernel']}, load {m['load_before']:.2f} at the start; {versions}.")


def replace(path, body):
    old = path.read_text()
    new, n = re.subn(f"{re.escape(BEGIN)}.*?{re.escape(END)}", lambda _: f"{BEGIN}\n{body}\n{END}", old, flags=re.S)
    if n != 1:
        raise SystemExit(f"{path}: the marks {BEGIN} and {END} must be there once")
    path.write_text(new)


def busy(run):
    """A warning where the machine had other work: a server of one thread then loses more than one of many."""
    load = run["machine"]["load_before"]
    return "" if load < 1 else (f"\n\nThe machine was busy with other work (load {load:.1f}) in this run: read the CPU of a "
                                "request, not the rates and times.")


def update(run):
    replace(machine.ROOT / "docs/performance.md", f"{made_by(run)}{busy(run)}\n\n{long_tables(run['rows'])}")
    replace(machine.ROOT / "README.md", short_table(run["rows"]) + busy(run))
