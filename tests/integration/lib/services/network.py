"""Machines on one desk: network namespaces, and a switch between them that is a thread of the test. It delays packets and loses those of
links that are cut, as a network does it: without a word to either side."""
import ctypes
import fcntl
import heapq
import itertools
import os
import select
import shutil
import struct
import subprocess
import threading
import time

LIBC = ctypes.CDLL(None, use_errno=True)
CLONE_NEWNET = 0x40000000
TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000


def run(*command):
    return subprocess.run([str(c) for c in command], capture_output=True, text=True)


def in_thread(function):
    """By a thread of its own, since one that has moved to another network does not come back."""
    results, problems = [], []

    def there():
        try:
            results.append(function())
        except BaseException as e:
            problems.append(e)
    thread = threading.Thread(target=there)
    thread.start()
    thread.join()
    if problems:
        raise problems[0]
    return results[0]


def new_namespace():
    """A descriptor of it: it has no name and needs no mount, and is gone when that and its processes are."""
    def make():
        if LIBC.unshare(CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "unshare")
        return os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    return in_thread(make)


def entering(namespace):
    return ["nsenter", f"--net=/proc/{os.getpid()}/fd/{namespace}"]


def why_not():
    """None: there can be such a network."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if not os.access("/dev/net/tun", os.R_OK | os.W_OK):
        return "there is no /dev/net/tun"
    if not shutil.which("ip") or not shutil.which("nsenter"):
        return "there is no ip (iproute2), or no nsenter (util-linux)"
    try:
        namespace = new_namespace()
    except OSError as e:
        return f"no network namespace can be made: {e}"
    tried = run(*entering(namespace), "ip", "link")
    os.close(namespace)
    return None if tried.returncode == 0 else f"no network namespace can be made: {tried.stderr.strip()}"


class Node:
    """A machine: `prefix` before a command runs it there, and within(function) runs a function of the test there."""

    def __init__(self, number):
        self.number, self.ip = number, f"10.99.0.{number}"
        self.namespace = new_namespace()
        self.prefix = entering(self.namespace)
        try:
            self.device = self.within(self._open)
            for words in (["addr", "add", f"{self.ip}/24", "dev", "mr0"], ["link", "set", "mr0", "mtu", 32000, "up"], ["link", "set", "lo", "up"]):
                done = run(*self.prefix, "ip", *words)
                assert done.returncode == 0, done.stderr
        except BaseException:
            os.close(self.namespace)
            raise

    @staticmethod
    def _open():
        device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH14x", b"mr0", IFF_TUN | IFF_NO_PI))
        return device

    def within(self, function):
        """By a thread that moves there; sockets that it opens stay there."""
        def there():
            if LIBC.setns(self.namespace, CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), "setns")
            return function()
        return in_thread(there)

    def end(self):
        os.close(self.device)
        os.close(self.namespace)


class Network:
    def __init__(self, count):
        self.nodes, self.cuts, self.delay_s = [], set(), 0.0
        self.is_over, self.passed, self.lost = False, 0, 0
        self.waiting, self.order = [], itertools.count()
        self.thread = threading.Thread(target=self._switch, daemon=True)
        try:
            for i in range(count):
                self.nodes.append(Node(i + 1))
        except BaseException:
            [n.end() for n in self.nodes]
            raise
        self.thread.start()

    def cut(self, node):
        """From all others."""
        self.cuts.add(node.number)

    def heal(self):
        self.cuts.clear()
        self.delay_s = 0.0

    def _switch(self):
        devices = {n.number: n.device for n in self.nodes}
        while not self.is_over:
            due = self.waiting[0][0] - time.monotonic() if self.waiting else 0.2
            for device in select.select(list(devices.values()), [], [], max(0, min(due, 0.2)))[0]:
                self._take(devices, os.read(device, 65536))
            while self.waiting and self.waiting[0][0] <= time.monotonic():
                self._give(devices, heapq.heappop(self.waiting)[2])

    def _take(self, devices, packet):
        if packet[0] >> 4 != 4 or packet[19] not in devices:
            return
        if self.delay_s:
            heapq.heappush(self.waiting, (time.monotonic() + self.delay_s, next(self.order), packet))
        else:
            self._give(devices, packet)

    def _give(self, devices, packet):
        if self.cuts & {packet[15], packet[19]}:
            self.lost += 1
            return
        try:
            os.write(devices[packet[19]], packet)
            self.passed += 1
        except BlockingIOError:
            self.lost += 1

    def end(self):
        self.is_over = True
        self.thread.join()
        [n.end() for n in self.nodes]
