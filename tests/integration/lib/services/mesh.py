"""Servers that share a registry."""
import http.client
import threading

from lib import repo, wait
from lib.rest import Rest

X = [("INPUT0", "INT32", [3], [1, 2, 3])]


def joined(server):
    with Rest(server.http) as r:
        wait.until(lambda: r.get("/v2/health/ready").status == 200, f"the server to join\n{server.describe()}")


def see_each_other(servers):
    """Each server that has joined is in the registry; the others learn of it a moment later."""
    for server in servers:
        with Rest(server.http) as r:
            wait.until(lambda: len(r.get("/v2/mesh").json()["peers"]) >= len(servers), f"the servers to see each other\n{server.describe()}")


def ask(server, model):
    with Rest(server.http) as r:
        return r.infer(model, X)


def answers(server, model):
    reply = ask(server, model)
    assert reply.status == 200, f"{model} at {server.command}: {reply.status} {reply.body[:300]}\n{server.describe()}"
    assert reply.json()["outputs"][0]["data"] == [1, 2, 3]


def own_repositories(tmp_path, count, models=2):
    """A repository for each server, with models that no other has."""
    repos = []
    for i in range(count):
        repos.append(tmp_path / f"repo{i}")
        for k in range(models):
            repo.add(repos[-1], f"of{i}-{k}", repo.config())
    return repos


def loads(server, model):
    return sum(e["event"] == "model.ready" and e["model"] == model for e in server.events())


def mesh_port(server):
    """At which other servers reach it."""
    return next(int(e["port"]) for e in server.events() if e["event"] == "serve.listen" and e["what"] == "mesh")


class Clients:
    """Threads that ask servers in turn, those that are taken out left out."""

    def __init__(self, servers, models, count=4):
        self.servers, self.models = list(servers), models
        self.lock = threading.Lock()
        self.is_over = False
        self.failures, self.each = [], [0] * count
        self.threads = [threading.Thread(target=self.run, args=(i,)) for i in range(count)]
        [t.start() for t in self.threads]

    @property
    def done(self):
        return sum(self.each)

    def more(self, count):
        """Until each of them has done so many more."""
        before = list(self.each)
        wait.until(lambda: all(e >= b + count for e, b in zip(self.each, before)), "the clients to go on")

    def leave(self, server):
        """It is asked by nobody any more, and what it still says does not count."""
        with self.lock:
            self.servers.remove(server)

    def join(self, server):
        with self.lock:
            self.servers.append(server)

    def run(self, me):
        connections, n = {}, me
        while not self.is_over:
            n += 1
            with self.lock:
                server = self.servers[n % len(self.servers)]
            if server not in connections:
                connections[server] = Rest(server.http)
            model = self.models[n % len(self.models)]
            try:
                reply = connections[server].infer(model, X)
                said = reply.status, reply.body[:200]
            except (OSError, http.client.HTTPException) as e:
                connections.pop(server).close()
                said = e, server.command
            with self.lock:
                self.each[me] += 1
                if said[0] != 200 and server in self.servers:  # one that ends is asked by nobody
                    self.failures.append((model, *said))
        [c.close() for c in connections.values()]

    def end(self):
        self.is_over = True
        [t.join(wait.PATIENCE) for t in self.threads]
