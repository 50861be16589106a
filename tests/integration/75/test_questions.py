"""What a client asks of a server: whether it and its models are ready, metadata and configurations, over REST and gRPC, with and without an
event loop."""
import pytest

from lib import repo, sdk
from lib.sdk import run_python as run

pytestmark = pytest.mark.skipif(sdk.MISSING, reason="no build folder, or no compiler")


def url(server, kind):
    return f"{kind}://{server.url(kind)}"


@pytest.mark.parametrize("kind", ["http", "grpc"])
def test_a_server_and_its_models(models, start, kind):
    repo.add(models, "m", max_batch_size=4, versions=(1, 2), extra="version_policy { all { } }")
    run("""
def check(live, ready, server, model, missing, version, no_version, config):
    assert (live, ready, version, no_version, missing) == (True, True, True, False, False), (live, ready, version, no_version, missing)
    assert server["name"] and "binary_tensor_data" in server["extensions"] and server["version"], server
    assert model["name"] == "m" and sorted(model["versions"]) == ["1", "2"]
    assert [(t["name"], t["datatype"], [int(n) for n in t["shape"]]) for t in model["inputs"]] == [("INPUT0", "INT32", [-1, -1])], model
    assert config["name"] == "m" and config["max_batch_size"] == 4 and config["input"][0]["name"] == "INPUT0"

def refused(ask):
    try:
        ask()
    except millrace.InferenceError as error:
        return error
    raise SystemExit("no error")

with millrace.Client(words[0], **PATIENT) as client:
    check(client.is_live(), client.is_ready(), client.server_metadata(), client.model_metadata("m"), client.is_model_ready("none"),
          client.is_model_ready("m", "2"), client.is_model_ready("m", "3"), client.model_config("m"))
    assert client.model_metadata("m", "1")["versions"], "of one version"
    for ask in (client.model_metadata, client.model_config):
        error = refused(lambda: ask("none"))
        assert "none" in str(error) and error.reason in ("not found", "invalid argument"), (error.reason, str(error))
    assert refused(lambda: client.is_model_ready("")).reason == "invalid argument"

async def main():
    async with millrace.AsyncClient(words[0], **PATIENT) as client:
        check(*await asyncio.gather(client.is_live(), client.is_ready(), client.server_metadata(), client.model_metadata("m"),
                                    client.is_model_ready("none"), client.is_model_ready("m", "2"), client.is_model_ready("m", "3"),
                                    client.model_config("m")))
        try:
            await client.model_config("none")
            raise SystemExit("no error")
        except millrace.InferenceError as error:
            assert "none" in str(error)
asyncio.run(main())
""", url(start(models), kind))


@pytest.mark.parametrize("kind", ["http", "grpc"])
def test_a_server_that_is_not_ready(models, start, kind):
    """It answers "no"; one that is not there is an error, and another host is asked."""
    repo.add(models, "m", "name: \"other\"")
    server = start(models, "--exit-on-error=false")
    run("""
with millrace.Client(words[0], **PATIENT) as client:
    assert client.is_live() and not client.is_ready() and not client.is_model_ready("m")
with millrace.Client(words[1], **PATIENT) as client:
    try:
        client.is_ready()
        raise SystemExit("no error")
    except millrace.InferenceError as error:
        assert error.reason == "unavailable" and "127.0.0.1:1" in str(error), error
with millrace.Client(words[1], words[0], strategy="round_robin", **PATIENT) as client:
    assert [client.is_live() for _ in range(4)] == [True] * 4
""", url(server, kind), f"{kind}://127.0.0.1:1")


def test_an_endpoint_is_asked_of_its_model(models, start):
    repo.add(models, "m")
    run("""
config = 'endpoint { name: "e" variant { tag: "a" model: "m" version: 1 weight: 1 remote: "%s" } variant { tag: "b" model: "none" remote: "%s" } }'
with millrace.Client(config=config % (words[0], words[0]), **PATIENT) as client:
    assert client.is_model_ready("e") and not client.is_model_ready("e", variant="b")
    assert client.model_metadata("e")["name"] == "m" and client.is_ready(model="e")
    try:
        client.is_ready()
        raise SystemExit("no error")
    except millrace.InferenceError as error:
        assert error.reason == "not found" and "endpoints" in str(error)
""", url(start(models), "http"))
