"""One run: servers that are up, repositories that were made, and the rounds of each row."""
import statistics
import sys
from pathlib import Path

from . import machine, models
from .servers import CopyLoop, Millrace, MLServer, Nghttpd, Nginx, Triton

# What a server does that takes no care of updates: weights on the heap, loads by an ordinary thread.
PLAIN = [f"--backend-config=onnxruntime,{option}" for option in ("parameter_memory=plain", "load_yield_seconds=0")]
# Our server again with other options, as a contender of its own.
VARIANTS = {"millrace, busy polling": ["--busy-poll-us=50"], "millrace, plain": PLAIN, "millrace, seen before": [],
            "millrace, python": [f"--python={machine.ROOT}/build/venv/bin/python3"],
            "millrace, environment of mlserver": [f"--python={MLServer.ENVIRONMENT}/python3"]}
# What Triton takes for a model on CPUs unless told otherwise. Which of one and two is better depends on the row: both are
# measured, and the better one is the Triton of the row.
TRITON_TWO = "triton, two instances"
FLOORS = {floor.name: floor for floor in (Nginx, Nghttpd, CopyLoop)}


class Bench:
    def __init__(self, folder, seconds, rounds, no_triton=None):
        self.folder, self.seconds, self.rounds, self.no_triton = folder, seconds, rounds, no_triton
        self.running = {}

    def repository(self, kind):
        return models.make(self.folder, kind)

    def begin(self, name, repository, *arguments, **more):
        """Starts a server; the caller stops it."""
        if name == "triton":
            self.need_triton(repository)
        make = {"millrace": Millrace, "triton": Triton, "mlserver": MLServer}[name]
        try:
            return make(repository, *arguments, **more)
        except machine.Ended:  # such as when another program has just taken one of its ports
            return make(repository, *arguments, **more)

    def need_triton(self, repository):
        """Raises Missing without a Triton that has the backends of the models of the repository."""
        if self.no_triton:
            raise machine.Missing(self.no_triton)
        configs = [file.read_text() for file in Path(repository).glob("*/config.pbtxt")]
        lacking = [b for b in Triton.lacking if any(f'backend: "{b}"' in text for text in configs)]
        if lacking:
            raise machine.Missing(f"the Triton in {Triton.home} has no backend {' and '.join(lacking)}")

    def server(self, name, kind="main", options=(), **more):
        """The server of that name over that repository, started once."""
        key = (name, kind)
        if key not in self.running:
            if name in FLOORS:
                self.running[key] = FLOORS[name](self.folder)
            elif name == TRITON_TWO:
                self.running[key] = self.begin("triton", self.repository(kind + models.TWO), *options, **more)
            elif name in VARIANTS:
                self.running[key] = self.begin("millrace", self.repository(kind), *VARIANTS[name], *options, **more)
            else:
                self.running[key] = self.begin(name, self.repository(kind), *options, **more)
        return self.running[key]

    def stop(self, keep=()):
        """Ends the servers whose repository is not among those to keep."""
        for key in [k for k in self.running if k[1] not in keep]:
            self.running.pop(key).stop()

    def measure(self, row):
        """{contender: {figure: [of each round]}}, and why contenders are missing."""
        figures, missing = {name: [] for name in row.contenders}, {}
        for number in range(row.rounds or self.rounds):
            for name, contender in row.contenders.items():
                if name in missing:
                    continue
                progress(f"{row.key}: round {number + 1}, {name}")
                try:
                    figures[name].append(contender(self))
                except (machine.Missing, RuntimeError, OSError) as e:
                    missing[name] = str(e)
        progress("")
        self.stop(keep=("main",))
        found = {name: by_figure(rounds) for name, rounds in figures.items() if rounds and name not in missing}
        if "triton" in missing:
            missing.pop(TRITON_TWO, None)
        return better_triton(found), missing


def better_triton(figures):
    """The Triton with the higher rate becomes that of the row, with the number of its instances as a figure."""
    two, one = figures.pop(TRITON_TWO, None), figures.get("triton")
    if two and one:
        is_two = statistics.median(two["rate"]) > statistics.median(one["rate"])
        figures["triton"] = {**(two if is_two else one), "instances": [2 if is_two else 1] * len(one["rate"])}
    return figures


def by_figure(rounds):
    return {figure: [r[figure] for r in rounds] for figure in rounds[0]}


def progress(text):
    """What is under way, on a terminal only."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{text}")
        sys.stderr.flush()


def judge(target, figures):
    """(value, met) of a target, or None where a contender is missing. With `beside`, the value is a ratio."""
    mine = figures.get(target.who, {}).get(target.figure)
    beside = figures.get(target.beside, {}).get(target.figure) if target.beside else None
    if mine is None or (target.beside and beside is None):
        return None
    value = statistics.median(a / b for a, b in zip(mine, beside)) if beside else statistics.median(mine)
    return value, value >= target.bound if target.least else value <= target.bound
