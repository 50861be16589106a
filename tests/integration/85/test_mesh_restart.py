"""A fleet whose servers are replaced one by one while clients go on."""
from lib import repo, wait
from lib.services.mesh import Clients, answers, joined


def test_rolling_restart_fails_no_request(fleet, registry, start, models):
    names = [f"m{i}" for i in range(12)]
    for name in names:
        repo.add(models, name, repo.config())
    servers = fleet(models, models, models)
    for i, name in enumerate(names):
        answers(servers[i % 3], name)
    clients = Clients(servers, names)
    try:
        for i in range(3):
            clients.leave(servers[i])
            servers[i].stop()
            new = start(models, f"--mesh={registry}", f"--mesh-id=new{i}", mode=None)
            joined(new)
            clients.join(new)
        wait.until(lambda: clients.done >= 2000, "2000 requests")
    finally:
        clients.end()
    assert clients.failures == []
