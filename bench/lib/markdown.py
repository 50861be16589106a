"""Writes the figures of a run into README.md and docs/performance.md, between two marks."""
import re
import statistics

from . import machine
from .earlier import EARLIER
from .report import cpu_text, heading, text
from .servers import OF_TABLES

MARKS = "<!-- bench: begin -->", "<!-- bench: end -->"
HOST_MARKS = "<!-- bench of hosts: begin -->", "<!-- bench of hosts: end -->"
TABLE_MARKS = "<!-- bench of tables: begin -->", "<!-- bench of tables: end -->"
SHORT = ("rest-json", "rest-binary", "grpc-streams", "grpc", "latency-json", "big-onnx-rest", "batching", "convolutional",
         "load", "updates-1", "start-demo")
NAMES = {"millrace": "Millrace", "triton": "Triton"}
MAIN = {"table": "rows", "latency": "p50", "load": "seconds", "updates": "worst", "start": "ready"}  # the figure of rows that begin so; of others the rate
UNITS = {"rate": "{}/s", "cpu": "{} CPU", "p50": "p50 {}", "rss": "{}", "batch": "batches of {}", "reads": "{} reads",
         "writes": "{} writes", "polls": "{} polls", "other calls": "{} other calls", "threads": "threads: {}",
         "peak": "peak {}", "kept": "{} of it kept", "health": "health {}", "worst": "longest wait {}", "p99.9": "p99.9 {}", "late": "clock {} late",
         "rows": "{} rows/s", "worker cpu": "{} CPU", "host cpu": "{} CPU of the host", "busy": "CPUs {} busy", "peak rss": "{}",
         "load": "loads in {}", "instances": "{}", "rss growth": "{} × after the first update"}
BESIDE = ("millrace, busy polling", "millrace, seen before", "millrace, plain", "triton, loads by REST",
          "nginx", "nghttpd", "copy loop", "ONNX Runtime")


def main_figure(row):
    return MAIN.get(row["key"].split("-")[0], "rate")


def figures_text(row, contender, figures):
    found = row["contenders"].get(contender, {})
    return ", ".join(UNITS.get(f, "{}").format(text(f, found[f]["median"])) for f in figures if f in found)


def main_cell(row, contender):
    extra = {"p50": ("cpu", "instances"), "seconds": ("cpu", "rss"), "worst": ("p99.9", "load", "rss", "rss growth", "late"),
             "ready": ("rss",)}.get(main_figure(row), ("cpu", "batch", "kept", "instances"))
    cell = figures_text(row, contender, (main_figure(row), *extra)).removeprefix("p50 ")
    if not cell and contender == "triton" and row["key"] in EARLIER:
        return f"not in this run; measured earlier: {EARLIER[row['key']]}"
    return cell or "–"


def ratios_cell(row):
    """The ratios that the row's targets judge. The bounds are for those who change the code: a run prints them."""
    found = []
    for t in row["targets"]:
        if t["beside"] and t["value"] is not None:
            figure = "" if t["figure"] == main_figure(row) else f"{heading(t['figure'])} "
            who = "" if t["who"] == "millrace" else t["who"].removeprefix("millrace, ") + " "
            found.append(f"{who}{figure}{t['value']:.2f} × {NAMES.get(t['beside'], t['beside'])}")
    return "; ".join([*found, *filter(None, [cpu_text(row).replace("triton", "Triton")])])


def is_comparison(row):
    """Of whole servers, in one figure."""
    return "millrace" in row["contenders"] and set(row["contenders"]) <= {"millrace", "triton", *BESIDE} and \
        main_figure(row) in row["contenders"]["millrace"]


def table(headings, rows):
    return "\n".join("| " + " | ".join(cells) + " |" for cells in [headings, ["---"] * len(headings), *rows])


def long_tables(rows):
    compared = [[r["title"], main_cell(r, "millrace"), main_cell(r, "triton"),
                 "; ".join(f"{b.removeprefix('millrace, ')} {main_cell(r, b)}" for b in BESIDE if b in r["contenders"]) or "–", ratios_cell(r)]
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
        others.append([r["title"], "<br>".join(said), ratios_cell(r) if r["key"] != "instructions" else ""])
    tables = [(["Workload", "Millrace", "Triton", "Beside", "Ratios"], compared), (["What", "Figures", "Ratios"], others)]
    return "\n\n".join(table(headings, found) for headings, found in tables if found)


def short_table(rows):
    chosen = [r for key in SHORT for r in rows if r["key"] == key]
    return table(["Workload", "Millrace", "Triton", "Millrace ÷ Triton", "CPU ÷ Triton's"], [
        [r["title"], main_cell(r, "millrace"), main_cell(r, "triton"), ratio(r, main_figure(r)), ratio(r, "cpu")]
        for r in chosen])


def ratio(row, figure):
    both = [row["contenders"].get(s, {}).get(figure) for s in ("millrace", "triton")]
    if not all(both):
        return "–"
    return f"{statistics.median(a / b for a, b in zip(both[0]['rounds'], both[1]['rounds'])):.2f}"


def made_by(run, of_tables=False):
    m = run["machine"]
    v = {k: version for k, version in run["versions"].items() if (k in OF_TABLES) == of_tables}
    versions = ", ".join(f"{NAMES.get(k, k)} {v[k]}" for k in v if v[k] and k != "millrace")
    of_time = "" if of_tables else f" of {run['seconds']} s"
    return (f"{run['rounds']} rounds{of_time} on {m['date']}; {m['cpu']}, {m['cpus']} CPUs, Linux "
            f"{m['kernel']}, load {m['load_before']:.2f} at the start; {versions}.")


def replace(path, body, marks=MARKS):
    begin, end = marks
    old = path.read_text()
    new, n = re.subn(f"{re.escape(begin)}.*?{re.escape(end)}", lambda _: f"{begin}\n{body}\n{end}", old, flags=re.S)
    if n != 1:
        raise SystemExit(f"{path}: the marks {begin} and {end} must be there once")
    path.write_text(new)


def busy(run):
    """A warning where the machine had other work: a server of one thread then loses more than one of many."""
    load = run["machine"]["load_before"]
    return "" if load < 1 else (f"\n\nThe machine was busy with other work (load {load:.1f}) in this run: read the CPU of a "
                                "request, not the rates and times.")


def tables_table(rows):
    """Whole tables: ours, and the others beside it."""
    def cell(row, who):
        return figures_text(row, who, row["contenders"].get(who, {})) or "–"
    return table(["Work", "Millrace", "Beside", "Ratios"], [
        [r["title"], cell(r, "millrace"), "; ".join(f"{who} {cell(r, who)}" for who in r["contenders"] if who != "millrace"), ratios_cell(r)]
        for r in rows])


def hosts_table(rows):
    """Scenarios of hosts: time and attempts."""
    def cell(row, figure):
        found = row["contenders"].get("millrace", {}).get(figure)
        return text(figure, found["median"]) if found else "–"
    return table(["Hosts", "Time", "÷ best possible", "Attempts a row"],
                 [[r["title"], *(cell(r, f) for f in ("seconds", "of best", "attempts"))] for r in rows])


def update(run):
    """Each of the parts for which the run has figures."""
    of_hosts = [r for r in run["rows"] if r["key"].startswith("balance-")]
    if of_hosts:
        m = run["machine"]
        said = f"On {m['date']}; {m['cpu']}, {m['cpus']} CPUs, load {m['load_before']:.2f} at the start."
        replace(machine.ROOT / "docs/performance.md", f"{said}\n\n{hosts_table(of_hosts)}", HOST_MARKS)
    run = dict(run, rows=[r for r in run["rows"] if r not in of_hosts])
    of_tables = [r for r in run["rows"] if r["key"].startswith("table-")]
    if of_tables:
        replace(machine.ROOT / "docs/performance.md", f"{made_by(run, True)}{busy(run)}\n\n{tables_table(of_tables)}", TABLE_MARKS)
    run = dict(run, rows=[r for r in run["rows"] if r not in of_tables])
    if not run["rows"]:
        return
    replace(machine.ROOT / "docs/performance.md", f"{made_by(run)}{busy(run)}\n\n{long_tables(run['rows'])}")
    replace(machine.ROOT / "README.md", short_table(run["rows"]) + busy(run))
