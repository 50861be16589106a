"""More load than there is capacity: gRPC calls with a deadline, sent at twice the rate that the server sustains,
whatever comes back. What counts is what is answered in time. Run as a program on the client's CPU, as the calls of
a second must leave on time:

  overload.py GRPC_PORT HTTP_PORT PATH BODY SECONDS   prints the figures as JSON
"""
import json
import statistics
import sys
import threading
import time
import urllib.request
from pathlib import Path

from . import machine

AHEAD = 8            # calls at a time when the peak is measured: the server always has one to go on with
DEADLINE_CALLS = 20  # a call may take as long as so many executions


def peak(call, body, seconds):
    """Answers a second with AHEAD calls under way, and nothing late."""
    done, stop = [0] * AHEAD, time.monotonic() + seconds

    def ask(i):
        while time.monotonic() < stop:
            call(body, timeout=60)
            done[i] += 1
    threads = [threading.Thread(target=ask, args=(i,)) for i in range(AHEAD)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    return sum(done) / seconds


def open_loop(call, body, rate, seconds, deadline):
    """Answers in time of calls that leave at a fixed rate, a second."""
    calls, begin = [], time.monotonic()
    for i in range(int(rate * seconds)):
        time.sleep(max(0, begin + i / rate - time.monotonic()))
        calls.append(call.future(body, timeout=deadline))
    took = time.monotonic() - begin
    return sum(c.exception() is None for c in calls) / took


class Health:
    """Asks every 20 ms whether the server is ready."""

    def __init__(self, port):
        self.url, self.times, self.ended = f"http://127.0.0.1:{port}/v2/health/ready", [], threading.Event()
        self.thread = threading.Thread(target=self.ask)

    def ask(self):
        while not self.ended.wait(0.02):
            begin = time.perf_counter()
            with urllib.request.urlopen(self.url, timeout=20) as reply:
                reply.read()
            self.times.append(1e6 * (time.perf_counter() - begin))

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.thread.join()


def main(grpc_port, http_port, path, body, seconds):
    import grpc
    message, seconds = Path(body).read_bytes(), float(seconds)
    with grpc.insecure_channel(f"127.0.0.1:{grpc_port}") as channel:
        call = channel.unary_unary(path)
        peak(call, message, 0.5)
        most = peak(call, message, seconds)
        with Health(http_port) as health:
            good = open_loop(call, message, 2 * most, seconds, DEADLINE_CALLS / most)
        print(json.dumps({"peak": most, "rate": good, "kept": good / most, "health": statistics.median(health.times)}))


def at_twice_the_peak(server, request):
    """A contender of a row."""
    def measure(bench):
        running = bench.server(server)
        body = Path(bench.folder, "overload.body")
        body.write_bytes(request.body[5:])  # without gRPC's own five bytes
        out = machine.output(machine.pinned(machine.client_cpu(), [
            sys.executable, "-m", "lib.overload", running.grpc, running.http, request.path, body, bench.seconds]),
            cwd=machine.ROOT / "bench")
        return json.loads(out)
    return measure


if __name__ == "__main__":
    main(*sys.argv[1:])
