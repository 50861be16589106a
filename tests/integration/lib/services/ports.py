"""Ports for servers that are to be found there later."""
import contextlib
import random
import socket
from pathlib import Path


def quiet_port():
    """A free port of 127.0.0.1 that the system gives to no one by itself, so that it stays free between two servers of a test."""
    first, last = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    quiet = [*range(max(1024, first - 10000), first), *range(last + 1, 65536)]
    for port in [*random.sample(quiet, len(quiet)), 0]:  # 0: any, where the system gives them all
        with contextlib.suppress(OSError), socket.socket() as s:
            s.bind(("127.0.0.1", port))
            return s.getsockname()[1]
