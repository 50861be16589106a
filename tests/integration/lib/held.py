"""What a server holds, as the system sees it."""
import os
from pathlib import Path

from lib.metrics import value


def descriptors(server):
    return len(os.listdir(f"/proc/{server.process.pid}/fd"))


def threads(server):
    return len(os.listdir(f"/proc/{server.process.pid}/task"))


def resident(server):
    pages = int(Path(f"/proc/{server.process.pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def cpu_seconds(server):
    fields = Path(f"/proc/{server.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def in_use(server):
    """Bytes of bulk memory that requests have."""
    return value(server, "millrace_block_bytes", use="requests")


def in_flight(server):
    """(requests in queues, bytes of requests): both are 0 when no request is in flight."""
    return (value(server, "nv_inference_pending_request_count"), in_use(server))
