"""Hosts of the client library: sockets, TLS, lists, choice, and hosts that die or stand still during a call. Programs in Python run
beside this one, as the library of the ASan build needs the sanitizer's own from their start on."""
import os

import pytest

from lib import repo, sdk, wait
from lib.sdk import run_python as run
from lib.services import odd
from lib.services.authority import Authority

pytestmark = pytest.mark.skipif(sdk.MISSING, reason="no build folder, or no compiler")

def test_unix_sockets(models, start, tmp_path_factory):
    repo.add(models, "m")
    folder = tmp_path_factory.mktemp("s")
    start(models, f"--http-address=unix:{folder}/http", f"--grpc-address=unix:{folder}/grpc")
    run("""
for url in words:
    with millrace.Client(url) as client:
        assert infer(client).host == url
with millrace.Client(words[0] + "-that-is-not-there") as client:
    assert refused(client).reason == "unavailable"
""", f"http://unix:{folder}/http", f"grpc://unix:{folder}/grpc")


def test_tls(models, start, tmp_path):
    repo.add(models, "m")
    authority = Authority(tmp_path / "authority")
    other = Authority(tmp_path / "other", "other")
    cert, key = authority.sign("server")
    mine, my_key = authority.sign("client")
    options = [f"--{side}-{words}" for side in ("http", "grpc")
               for words in ("use-ssl-mutual", f"server-cert={cert}", f"server-key={key}", f"root-cert={authority.cert}")]
    server = start(models, *options)
    run("""
ca, cert, key, other, *urls = words
for url in urls:
    mutual = {"tls_cert_file": cert, "tls_key_file": key}
    with millrace.Client(url, tls_ca_file=ca, **mutual) as client:
        assert infer(client).host == url
    with millrace.Client(url, tls_insecure=1, **mutual) as client:
        infer(client)
    with millrace.Client(url, tls_ca_file=ca, tls_server_name="localhost", **mutual) as client:
        infer(client)
    for wrong in ({"tls_ca_file": other}, {}, {"tls_ca_file": ca, "tls_server_name": "elsewhere"}):
        with millrace.Client(url, **mutual, **wrong) as client:
            error = refused(client)
            assert error.reason == "unavailable" and "certificate" in str(error), error
    with millrace.Client(url, tls_ca_file=ca) as client:  # without a certificate of its own
        assert refused(client).reason == "unavailable"
""", authority.cert, mine, my_key, other.cert, f"https://{server.url()}", f"grpcs://{server.url('grpc')}")


def test_a_file_of_hosts_that_changes(server, tmp_path):
    run("""
path, first, second = Path(words[0]), *words[1:]

def write(text):
    path.with_suffix(".new").write_text(text)
    path.with_suffix(".new").rename(path)

write(f"# hosts\\n{first}\\n\\n")
with millrace.Client(f"file://{path}") as client:
    ask = lambda: infer(client, "flat_int32").host
    assert {ask() for _ in range(4)} == {first}
    write(f"{second} 2 # its share\\n")
    until(lambda: ask() == second)
    assert {ask() for _ in range(4)} == {second}
    write(f"{first}\\n{second}\\n")
    until(lambda: ask() == first)
    path.unlink()
    assert {ask() for _ in range(4)} <= {first, second}
try:
    millrace.Client(f"file://{path}")
    raise SystemExit("no error")
except millrace.InferenceError as error:
    assert error.reason == "not found" and str(path) in str(error), error
""", tmp_path / "hosts", f"http://{server.url()}", f"grpc://{server.url('grpc')}")


def test_a_file_that_changes_while_calls_wait(server, tmp_path):
    """A host that is added takes what waits; one that has left with a call that hangs is closed with the client, as are the others."""
    run("""
path, first, second = Path(words[0]), *words[1:]
silent = socket.create_server(("127.0.0.1", 0))
A = "http://127.0.0.1:%d" % silent.getsockname()[1]
ended = []

def write(*hosts):
    path.with_suffix(".new").write_text("\\n".join(hosts))
    path.with_suffix(".new").rename(path)

def call():
    try:
        ended.append(infer(client, "flat_int32").host)
    except millrace.InferenceError as error:
        ended.append(error.reason)

write(A)
client = millrace.Client(f"file://{path}", max_connections=1, **PATIENT)
hangs = threading.Thread(target=call)
hangs.start()
connection = silent.accept()[0]
waits = threading.Thread(target=call)
waits.start()
write(A, first)
waits.join()
assert ended == [first], ended
write(first, second)
until(lambda: infer(client, "flat_int32").host == second)
client.close()
hangs.join()
assert ended == [first, "cancelled"], ended
""", tmp_path / "hosts", f"http://{server.url()}", f"grpc://{server.url('grpc')}")


def test_a_host_that_leaves_is_no_other_one(tmp_path):
    """It has a call yet, and takes no new one: a call that does not wait for a busy host ends at once."""
    busy = [odd.http({"error": "busy"}, "503 Service Unavailable")]
    with odd.serving("http", odd.GOOD["http"], busy) as host:
        run("""
path, url = Path(words[0]), words[1]
silent = socket.create_server(("127.0.0.1", 0))

def write(line):
    path.with_suffix(".new").write_text(line)
    path.with_suffix(".new").rename(path)

write("http://127.0.0.1:%d" % silent.getsockname()[1])
client = millrace.Client(f"file://{path}", max_connections=1, **PATIENT)
hangs = threading.Thread(target=refused, args=[client])
hangs.start()
connection = silent.accept()[0]
write(url)
assert infer(client).host == url  # which waited for it
assert "busy" in str(refused(client, fail_fast=True))
client.close()
hangs.join()
""", tmp_path / "hosts", host.url)
        assert host.asked == 2


def test_hosts_of_a_name(server):
    run("""
http, grpc = words
for url, scheme, port in ((f"dns://localhost:{http}", "", http), (f"dns://grpc://localhost:{grpc}", "grpc://", grpc)):
    with millrace.Client(url) as client:
        assert infer(client, "flat_int32").host == f"{scheme}127.0.0.1:{port}"
with millrace.Client("dns://there-is-none.invalid:1") as client:
    error = refused(client)
    assert error.reason == "unavailable" and "cannot look up there-is-none.invalid: " in str(error), error
""", server.http, server.grpc)


def test_sticky(server):
    run("""
config = '''
client { remote: "%s" }
endpoint {
  name: "e" sticky { key: "header:X-User" salt: "s" }
  variant { tag: "a" model: "flat_int32" weight: 50 }
  variant { tag: "b" model: "flat_int32" weight: 50 }
}
''' % words[0]
users = [f"user-{i}" for i in range(64)]
with millrace.Client(config=config) as one, millrace.Client(config=config) as two:
    by_key = [infer(one, "e", key=user).variant for user in users]
    assert set(by_key) == {"a", "b"}
    assert [infer(one, "e", key=user).variant for user in users] == by_key
    assert [infer(two, "e", headers={"x-user": user}).variant for user in users] == by_key
    assert {infer(one, "e", key=user, variant="b").variant for user in users} == {"b"}
    assert {infer(one, "e").variant for _ in range(100)} == {"a", "b"}  # without a key: by weight
    last = infer(one, "e", variant="b")
assert last.variant == "b" and last.host == words[0]  # it outlives its client
for user, variant in zip(users[:8], by_key):  # a header of the client, unless the request has its own
    with millrace.Client(config=config, headers={"X-User": user}) as client:
        assert [infer(client, "e").variant for _ in range(4)] == [variant] * 4
        assert [infer(client, "e", headers={"x-user": other}).variant for other in users[:8]] == by_key[:8]
with millrace.Client(*words, strategy="hash") as one, millrace.Client(*reversed(words), strategy="hash") as two:
    by_key = [infer(one, "flat_int32", key=user).host for user in users]
    assert set(by_key) == set(words)
    assert [infer(two, "flat_int32", key=user).host for user in users] == by_key
with millrace.Client(*words, strategy="round_robin") as client:  # and a sequence by its id, whatever the strategy
    hosts = [{infer(client, "flat_int32", sequence=i).host for _ in range(3)} for i in range(1, 33)]
    assert all(len(one) == 1 for one in hosts) and set().union(*hosts) == set(words)
""", f"http://{server.url()}", f"grpc://{server.url('grpc')}")


EJECTION = """
class Closes:
    \"\"\"A host that closes each connection.\"\"\"

    def __init__(self):
        self.asked = 0
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.socket.getsockname()[1]}"
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            connection, _ = self.socket.accept()
            connection.recv(1)
            self.asked += 1
            connection.close()

bad = Closes()
with millrace.Client(bad.url, words[0], strategy="round_robin") as client:
    streak = 0
    def passes_over():  # in turn, every second call would go there
        global streak
        before = bad.asked
        assert infer(client, "flat_int32").host == words[0]
        streak = streak + 1 if bad.asked == before else 0
        return streak == 10
    until(passes_over)
    assert bad.asked >= 3
"""


def test_a_host_that_fails_is_left_alone(server):
    run(EJECTION, f"http://{server.url()}")


def addresses(kind, *servers):
    return [f"{kind}://{server.url(kind)}" for server in servers]


@pytest.mark.parametrize("kind", ["http", "grpc"])
def test_a_host_is_killed_during_a_call(start, models, hold, tmp_path, kind):
    repo.add(models, "m", backend="fault", parameters=hold.parameters)
    repo.add(tmp_path / "other", "m")
    killed, other = start(models), start(tmp_path / "other")
    run("""
pid, held, killed, other = int(words[0]), *words[1:]

async def main():
    async with millrace.AsyncClient(killed, other, strategy="round_robin", attempt_timeout_ms=600000) as client:
        calls = [asyncio.ensure_future(client.infer("m", {"INPUT0": X}, timeout=300)) for _ in range(2)]
        # The library's thread may begin a call late: the other one is answered before the kill, or it would meet the dead host, too.
        while not os.path.exists(held) or not any(c.done() for c in calls):
            await asyncio.sleep(0.01)
        os.kill(pid, signal.SIGKILL)
        results = [good(r) for r in await asyncio.gather(*calls)]
        assert [r.host for r in results] == [other, other]
        assert sorted(r.attempts for r in results) == [1, 2], [(r.attempts, r.host) for r in results]
        for _ in range(8):
            assert good(await client.infer("m", {"INPUT0": X}, timeout=300)).host == other

asyncio.run(main())
""", killed.process.pid, hold.path.with_suffix(".held"), *addresses(kind, killed, other))
    assert killed.process.wait(wait.PATIENCE) == -9
    killed.end_anyhow()


@pytest.mark.few
@pytest.mark.parametrize("kind", ["http", "grpc"])
def test_a_connection_whose_server_is_gone_raises_no_signal(models, start, tmp_path_factory, kind):
    """A program that leaves SIGPIPE at its default goes on, with the other host."""
    repo.add(models, "m")
    path = tmp_path_factory.mktemp("s") / "socket"
    killed, other = start(models, f"--{kind}-address=unix:{path}"), start(models)
    run("""
pid, killed, other = int(words[0]), *words[1:]
signal.signal(signal.SIGPIPE, signal.SIG_DFL)
with millrace.Client(killed, other, strategy="round_robin") as client:
    seen = set()
    until(lambda: seen.add(infer(client).host) or seen == {killed, other})
    os.kill(pid, signal.SIGKILL)
    until(lambda: Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z")
    results = [infer(client) for _ in range(4)]
    assert {r.host for r in results} == {other} and max(r.attempts for r in results) == 2
""", killed.process.pid, f"{kind}://unix:{path}", *addresses(kind, other))
    assert killed.process.wait(wait.PATIENCE) == -9
    killed.end_anyhow()


@pytest.mark.parametrize("kind", ["http", "grpc"])
def test_a_host_stands_still(start, models, kind):
    """The calls that it gets have an answer by a second copy, or by another attempt when the first one's time is over."""
    repo.add(models, "m")
    stopped, other = start(models), start(models)
    try:
        run("""
pid, stopped, other = int(words[0]), *words[1:]

def is_stopped():
    return all(t.joinpath("stat").read_text().rpartition(")")[2].split()[0] == "T" for t in Path(f"/proc/{pid}/task").iterdir())

with millrace.Client(stopped, other, strategy="round_robin", hedge_after_ms=20, attempts=16) as client:
    seen = set()
    until(lambda: seen.add(infer(client).host) or seen == {stopped, other})
    os.kill(pid, signal.SIGSTOP)
    until(is_stopped)
    results = []

    def is_answered_elsewhere():
        results.append(infer(client))
        return results[-1].attempts > 1
    until(is_answered_elsewhere)
    assert {r.host for r in results} == {other}
""", stopped.process.pid, *addresses(kind, stopped, other))
    finally:
        os.kill(stopped.process.pid, 18)  # SIGCONT


def test_what_has_no_effect_is_warned_of(server):
    run("""
import warnings
variant = 'variants { tag: "v" naming_conf { cluster: "%s" } rpc_parameter { protocol: "http" } %s }'
paddle = 'predictors { name: "flat_int32" ' + variant + ' }'
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    with millrace.Client(config=paddle % (words[0], "")) as client:
        infer(client, "flat_int32")
    assert not caught
    with millrace.Client(config=paddle % (words[0], 'connection_conf { connection_type: "short" }')) as client:
        infer(client, "flat_int32")
    assert len(caught) == 1 and str(caught[0].message).startswith('connection_type "short", and'), caught
""", f"http://{server.url()}")
