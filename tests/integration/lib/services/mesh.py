"""Servers that share a registry."""
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
