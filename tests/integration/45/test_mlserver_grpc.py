"""What MLServer answers over gRPC, beside MLServer's own service, which runs the same models."""
import json
import subprocess

import grpc as raw
import pytest
from tritonclient.grpc import service_pb2 as pb

from lib import pymodels, repo
from lib.pymodels import add_mlserver
from lib.rest import Rest

DECLARED = [{"name": "y", "datatype": "FP32", "shape": [-1, 64], "parameters": {"content_type": "np"}}]
STREAM = "/inference.GRPCInferenceService/ModelStreamInfer"


@pytest.fixture
def start(start):
    def make(models, *args, **kw):
        return start(models, *pymodels.options(pymodels.MLSERVER), *args, "--mlserver-errors", "--load-model=*", mode="explicit", **kw)
    return make


def add_models(models):
    add_mlserver(models / "m", "runtimes.Sum", parameters={"version": "v1"}, platform="sums", versions=["sum/1"], inputs=DECLARED,
                 outputs=[{"name": "z", "datatype": "INT64", "shape": [-1]}])
    add_mlserver(models / "numbered", "runtimes.Sum", parameters={"version": "7"})
    add_mlserver(models / "bare", "runtimes.Sum")
    add_mlserver(models / "words", "runtimes.Commanded")
    add_mlserver(models / "said", "runtimes.Words")
    add_mlserver(models / "talk", "runtimes.Talk")


def compared(models, server):
    """Of each call, by its name: what became of it at MLServer, and here."""
    done = subprocess.run([pymodels.MLSERVER, repo.TOP / "tests/integration/lib/services/mlservergrpc.py", models, server.url("grpc")],
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.more
def test_same_as_mlserver(models, start):
    """Metadata of models, answers with their trailing metadata, codes and texts of errors."""
    add_models(models)
    found = compared(models, start(models))
    index = found.pop("index")
    assert {name: here for name, (_, here) in found.items()} == {name: there for name, (there, _) in found.items()}
    assert found["metadata"][1]["messages"][0]["inputs"][0]["name"] == "y" and found["infer"][1]["trailing"]["ce-id"] == "seven"
    assert len(found["stream_summed"][1]["messages"]) == 3 and len(found["stream_stopped"][1]["messages"]) == 1
    assert len(found["stream"][1]["messages"]) == 3 and found["stream"][1]["trailing"]["ce-id"] == "w"
    for answer in index:  # MLServer's has no order, and says "State.READY" where REST says "READY"
        rows = answer["messages"][0]["models"]
        rows.sort(key=lambda row: row["name"])
        [row.update(state=row["state"].removeprefix("State.")) for row in rows]
    assert index[0] == index[1]


@pytest.mark.more
def test_index(models, start):
    """Versions are those of the files; what is not loaded is listed as MLServer does."""
    add_models(models)
    server = start(models)
    with Rest(server.http) as rest:
        rest.post("/v2/repository/models/words/unload").ok()
        (models / "late").mkdir()
        add_mlserver(models / "late", "runtimes.Sum")
        (models / "empty").mkdir()
        rows = {row["name"]: row for row in rest.post("/v2/repository/index", {}).ok().json()}
        ready = rest.post("/v2/repository/index", {"ready": True}).ok().json()
    assert rows["m"] == {"name": "m", "version": "v1", "state": "READY", "reason": ""}
    assert rows["numbered"] == {"name": "numbered", "version": "7", "state": "READY", "reason": ""}
    assert rows["bare"] == {"name": "bare", "state": "READY", "reason": ""}
    assert rows["words"] == {"name": "words", "state": "UNAVAILABLE", "reason": ""}
    assert sorted(row["name"] for row in ready) == ["bare", "m", "numbered", "said", "talk"]


def test_streams_of_other_models(models, start):
    """A request for a model that is not MLServer's fails within the stream, which goes on, as at Triton."""
    repo.add(models, "other")
    server = start(models)
    with raw.insecure_channel(server.url("grpc")) as channel:
        call = channel.stream_stream(STREAM, pb.ModelInferRequest.SerializeToString, pb.ModelStreamInferResponse.FromString)
        answers = list(call(iter([pb.ModelInferRequest(model_name="other", id="a"), pb.ModelInferRequest(model_name="other", id="b")])))
        assert [a.infer_response.id for a in answers] == ["a", "b"] and all("expected" in a.error_message for a in answers)
        with pytest.raises(raw.RpcError) as e:
            list(call(iter([pb.ModelInferRequest(model_name="nope")])))
    assert (e.value.code(), e.value.details()) == (raw.StatusCode.NOT_FOUND, "Model nope not found")
