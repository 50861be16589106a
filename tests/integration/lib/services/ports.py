"""Ports for servers that are to be found there later."""
import random
import socket
from pathlib import Path


def quiet_port():
    """A free port of 127.0.0.1 that the system gives to no one by itself, so that it stays free between two servers of a test."""
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    while True:
        port = random.randrange(max(1024, first - 10000), first)
        with socket.socket() as s:
            try:
                s.bind(("127.0.0.1", port))
                return port
            except OSError:
                continue
