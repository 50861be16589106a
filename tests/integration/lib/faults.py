"""The program with faults on order (tests/faults/faults.c): memory and threads refused, the wall clock moved, a disk that fails."""
import mmap
import struct

from lib.server import BIN

PROGRAM = BIN.with_name("millrace-faults")
FIELDS = ("memory_every", "memory_least", "memory_asked", "memory_failed", "threads_fail", "threads_failed", "wall_offset_ns",
          "disk_calls", "disk_first", "disk_count", "disk_error", "disk_failed")


class Faults:
    """Give `env` to the server. Fields are read and written as attributes, and act at once."""

    def __init__(self, folder):
        path = folder / "faults"
        path.write_bytes(bytes(8 * len(FIELDS)))
        with open(path, "r+b") as f:
            self.__dict__["map"] = mmap.mmap(f.fileno(), 0)
        self.__dict__["env"] = {"MR_FAULTS": str(path)}

    def __getattr__(self, name):
        return struct.unpack_from("<q", self.map, 8 * FIELDS.index(name))[0]

    def __setattr__(self, name, value):
        struct.pack_into("<q", self.map, 8 * FIELDS.index(name), value)
