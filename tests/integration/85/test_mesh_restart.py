"""A fleet whose servers are replaced one by one while clients go on."""
import threading

from lib import repo, wait
from lib.rest import Rest
from lib.services.mesh import X, answers, joined


class Clients:
    """Threads that ask servers in turn, those that are taken out left out."""

    def __init__(self, servers, models, count=4):
        self.servers, self.models = list(servers), models
        self.lock = threading.Lock()
        self.is_over = False
        self.failures, self.done = [], 0
        self.threads = [threading.Thread(target=self.run, args=(i,)) for i in range(count)]
        [t.start() for t in self.threads]

    def run(self, n):
        connections = {}
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
            except OSError as e:
                said = e, server.command
            with self.lock:
                self.done += 1
                if said[0] != 200 and server in self.servers:  # one that ends is asked by nobody
                    self.failures.append(said)
        [c.close() for c in connections.values()]

    def end(self):
        self.is_over = True
        [t.join(wait.PATIENCE) for t in self.threads]


def test_rolling_restart_fails_no_request(fleet, start, registry, models):
    names = [f"m{i}" for i in range(12)]
    for name in names:
        repo.add(models, name, repo.config())
    servers = fleet(models, models, models)
    for i, name in enumerate(names):
        answers(servers[i % 3], name)
    clients = Clients(servers, names)
    try:
        for i in range(3):
            with clients.lock:
                clients.servers.remove(servers[i])
            servers[i].stop()
            new = start(models, f"--mesh={registry}", f"--mesh-id=new{i}", mode=None)
            joined(new)
            with clients.lock:
                clients.servers.append(new)
        wait.until(lambda: clients.done >= 2000, "2000 requests")
    finally:
        clients.end()
    assert clients.failures == []
