"""Waiting until a condition is true, by polling with a deadline, so that tests need no fixed sleeps."""
import os
import time

# Sanitizer builds are several times slower; deadlines are bounds, never expectations:
# a machine that has much else to do does not reach them either.
SLOW = 4 if os.environ.get("MR_BUILD", "release") in ("asan", "tsan", "debug") else 1
PATIENCE = 60.0 * SLOW


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
    """The first truthy result of condition(); AssertionError when it never comes."""
    end = time.monotonic() + patience
    last = None
    while time.monotonic() < end:
        last = condition()
        if last:
            return last
        time.sleep(step)
    raise AssertionError(f"waited {patience:.0f} s in vain for {what}; last seen: {last!r}")
