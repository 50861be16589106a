"""Waiting until a condition is true, by polling with a deadline, so that tests need no fixed sleeps."""
import os
import time
from pathlib import Path

SLOW = 4 if os.environ.get("MR_BUILD", "release") in ("asan", "tsan", "debug") else 1  # times slower, about
# What comes at all comes sooner, on a machine that has much else to do as well: a bound, never an expectation.
PATIENCE = 300.0


def equal(function, expected, what="it", patience=PATIENCE):
    """Until function() == expected."""
    last = []

    def check():
        last[:] = [function()]
        return last[0] == expected

    try:
        until(check, what, patience)
    except AssertionError:
        raise AssertionError(f"waited {patience:.0f} s in vain for {what} to be {expected!r}; it is {last[0]!r}") from None


def until(condition, what="the condition", patience=PATIENCE, step=0.01):
    """The first truthy result of condition(), which is asked after longer and longer pauses; AssertionError when it never comes."""
    end = time.monotonic() + patience
    last = None
    while time.monotonic() < end:
        last = condition()
        if last:
            return last
        time.sleep(step)
        step = min(1.2 * step, max(step, 0.06)) if step >= 0.01 else step
    raise AssertionError(f"waited {patience:.0f} s in vain for {what}; last seen: {last!r}")


def stopped(pid):
    """Until no thread of the process runs any more, after a SIGSTOP."""
    def check():
        try:
            stats = [(task / "stat").read_text() for task in Path(f"/proc/{pid}/task").iterdir()]
        except OSError:  # a thread has ended meanwhile
            return False
        return all(stat.rpartition(")")[2].split()[0] in "TZ" for stat in stats)

    until(check, f"process {pid} to stop")
