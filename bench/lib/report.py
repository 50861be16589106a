"""The run as text on a terminal, as JSON and as Markdown."""
import statistics

from .bench import judge
from .earlier import EARLIER

FIGURES = {  # name: (heading, format)
    "rate": ("requests/s", lambda v: f"{v:,.0f}" if v >= 1000 else f"{v:.1f}"),
    "p50": ("p50", lambda v: time_text(v)),
    "p99": ("p99", lambda v: time_text(v)),
    "cpu": ("server CPU", lambda v: time_text(v)),
    "client": ("client CPU", lambda v: time_text(v)),
    "switches": ("switches", lambda v: f"{v:.2f}"),
    "batch": ("mean batch", lambda v: f"{v:.1f}"),
    "seconds": ("time", lambda v: time_text(1e6 * v)),
    "ready": ("ready after", lambda v: time_text(1e3 * v)),
    "gone": ("gone after", lambda v: time_text(1e3 * v)),
    "of load": ("÷ first load", lambda v: f"{v:.3f}"),
    "rss": ("memory", lambda v: f"{v:,.1f} MB"),
    "rss after": ("after unload", lambda v: f"{v:,.1f} MB"),
    "reads": ("reads", lambda v: f"{v:.2f}"),
    "writes": ("writes", lambda v: f"{v:.2f}"),
    "polls": ("polls", lambda v: f"{v:.2f}"),
    "other calls": ("other calls", lambda v: f"{v:.2f}"),
    "peak": ("peak", lambda v: f"{v:,.0f}/s"),
    "kept": ("kept", lambda v: f"{v:.2f}"),
    "health": ("health", lambda v: time_text(v)),
    "p99.9": ("p99.9", lambda v: time_text(v)),
    "p99.9 quiet": ("p99.9 quiet", lambda v: time_text(v)),
    "worst": ("longest wait", lambda v: time_text(v)),
    "worst quiet": ("longest wait quiet", lambda v: time_text(v)),
    "load": ("load", lambda v: time_text(1e6 * v)),
    "rss growth": ("memory, last ÷ first update", lambda v: f"{v:.2f}"),
    "doubtful": ("doubtful windows", lambda v: f"{v:.0f}"),
    "late": ("clock late by", lambda v: time_text(v)),
    "threads": ("threads", lambda v: f"{v:.0f}"),
    "instances": ("instances", lambda v: f"{v:.0f} instance" + "s" * (v > 1)),
    "rows": ("rows/s", lambda v: f"{v:,.0f}"),
    "worker cpu": ("worker's CPU", lambda v: time_text(v)),
    "host cpu": ("host's CPU", lambda v: time_text(v)),
    "failed": ("failed", lambda v: f"{v:,.0f}"),
    "loads": ("loads/s", lambda v: f"{v:,.0f}"),
    "loaders": ("loaders busy", lambda v: f"{v:.0f} %"),
    "busy": ("CPUs busy", lambda v: f"{v:.0f} %"),
    "of best": ("time ÷ best possible", lambda v: f"{v:.3f}"),
    "attempts": ("attempts a row", lambda v: f"{v:.3f}"),
    "peak rss": ("peak memory", lambda v: f"{v:,.0f} MB"),
}


def time_text(us):
    if us < 1000:
        return f"{us:.1f} µs" if us < 100 else f"{us:.0f} µs"
    return f"{us / 1e3:.1f} ms" if us < 1e6 else f"{us / 1e6:.2f} s"


def heading(figure):
    return FIGURES[figure][0] if figure in FIGURES else figure


def text(figure, value):
    return FIGURES[figure][1](value) if figure in FIGURES else f"{value:,.0f}"


def result(row, figures, missing):
    """A row of the JSON."""
    targets = []
    for t in row.targets:
        found = judge(t, figures)
        targets.append({"who": t.who, "figure": t.figure, "beside": t.beside, "sign": "≥" if t.least else "≤",
                        "bound": t.bound, "value": found and round(found[0], 4), "met": found and found[1]})
    contenders = {name: {f: {"median": statistics.median(v), "rounds": v} for f, v in by.items()}
                  for name, by in figures.items()}
    return {"key": row.key, "title": row.title, "note": row.note, "contenders": contenders, "missing": missing,
            "targets": targets}


def target_text(t):
    """(what is compared, value, bound, verdict)"""
    if t["beside"]:
        what = f"{heading(t['figure'])} of {t['who']} ÷ {t['beside']}"
        value, bound = "{:.2f}", f"{t['sign']} {t['bound']:g}"
    else:
        what = f"{heading(t['figure'])} of {t['who']}"
        value, bound = "{}", f"{t['sign']} {text(t['figure'], t['bound'])}"
    if t["value"] is None:
        return what, "–", bound, "not judged"
    shown = value.format(t["value"] if t["beside"] else text(t["figure"], t["value"]))
    return what, shown, bound, "met" if t["met"] else "NOT MET"


def table(rows):
    """Lines of a table with its first column to the left, the others to the right."""
    widths = [max(len(r[i]) for r in rows) for i in range(len(rows[0]))]
    for r in rows:
        yield "  ".join(c.ljust(w) if i == 0 else c.rjust(w) for i, (c, w) in enumerate(zip(r, widths))).rstrip()


def as_text(row):
    """What a finished row looks like on the terminal."""
    lines = ["", row["title"].replace("`", "")]
    names = list(row["contenders"])
    if names:
        figures = list(dict.fromkeys(f for n in names for f in row["contenders"][n]))
        if row["key"] == "instructions":  # many figures of few contenders: the other way round
            cells = [[""] + names] + [[f] + [cell(row, n, f) for n in names] for f in figures]
        else:
            cells = [[""] + [heading(f) for f in figures]] + [[n] + [cell(row, n, f) for f in figures] for n in names]
        lines += ["  " + line for line in table(cells)]
    for name, why in row["missing"].items():
        lines.append(f"  {name}: not measured: {why}")
        if name == "triton" and row["key"] in EARLIER:
            lines.append(f"  triton, measured earlier on another machine of two CPUs: {EARLIER[row['key']]}")
    if row["note"]:
        lines.append(f"  ({row['note']})")
    cpu = cpu_text(row)
    if cpu:
        lines.append(f"  {cpu}")
    for t in row["targets"]:
        what, value, bound, verdict = target_text(t)
        lines.append(f"  {verdict:10}  {value:>8}  target {bound:10}  {what}")
    return "\n".join(lines)


def cpu_text(row):
    """Millrace's CPU for a request to that of the others: says most where other programs share the CPUs."""
    cpu = {name: found["cpu"]["rounds"] for name, found in row["contenders"].items() if "cpu" in found}
    mine = cpu.pop("millrace", None)
    ratios = []
    for name, other in cpu.items():
        # The system counts CPU time in hundredths of a second: a very short round may have none.
        rounds = [a / b for a, b in zip(mine or (), other) if b]
        ratios += [f"{statistics.median(rounds):.2f} × {name}'s"] if rounds else []
    return "CPU " + ", ".join(ratios) if ratios else ""


def cell(row, name, figure):
    found = row["contenders"][name].get(figure)
    return text(figure, found["median"]) if found else ""


def summary(rows):
    targets = [(r, t) for r in rows for t in r["targets"]]
    lines = ["", f"{sum(t['met'] is True for _, t in targets)} of {len(targets)} targets met, "
                 f"{sum(t['met'] is None for _, t in targets)} not judged"]
    for r, t in targets:
        if t["met"] is False:
            what, value, bound, _ = target_text(t)
            lines.append(f"  not met: {r['key']}: {what} is {value}, target {bound}")
    return "\n".join(lines)
