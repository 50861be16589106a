"""The program with faults on order (tests/faults/faults.c): memory and threads refused, the clocks moved, a disk that fails."""
import mmap
import struct

from lib.rest import Rest
from lib.server import BIN

PROGRAM = BIN.with_name("millrace-faults")
FIELDS = ("memory_every", "memory_least", "memory_asked", "memory_failed", "threads_fail", "threads_failed", "wall_offset_ns",
          "disk_calls", "disk_first", "disk_count", "disk_error", "disk_failed", "steady_offset_ns")


class Faults:
    """Give `env` to the server. Fields are read and written as attributes, and act at once."""

    def __init__(self, folder):
        path = folder / "faults"
        path.write_bytes(bytes(8 * len(FIELDS)))
        with open(path, "r+b") as f:
            self.__dict__["map"] = mmap.mmap(f.fileno(), 0)
        self.__dict__["env"] = {"MR_FAULTS": str(path)}

    def later(self, server, seconds):
        """So much time passes at once. The server's threads notice when something wakes them up: here one of a server with
        --loop-threads=1, by a question on a connection of its own."""
        self.steady_offset_ns += int(seconds * 1e9)
        with Rest(server.http) as rest:
            rest.get("/v2/health/live").ok()

    def __getattr__(self, name):
        return struct.unpack_from("<q", self.map, 8 * FIELDS.index(name))[0]

    def __setattr__(self, name, value):
        struct.pack_into("<q", self.map, 8 * FIELDS.index(name), value)
