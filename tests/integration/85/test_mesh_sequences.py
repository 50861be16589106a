"""Requests that must not be spread or repeated, and headers that belong to the mesh."""
import signal
import threading

import grpc
import pytest

from lib import grpcraw, pymodels, repo, wait
from lib.rest import Rest
from lib.services.mesh import answers, loads

SEQUENCES = """sequence_batching {{ max_sequence_idle_microseconds: 3600000000 {strategy}
  control_input {{ name: "INPUT_START" control {{ kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] }} }} }}"""


def add_sequences(folder, name):
    """An identity model that says which request is the first of its sequence."""
    repo.add(folder, name, max_batch_size=4, inputs=[repo.tensor("INPUT_X", dims=(1,))],
             outputs=[repo.tensor("OUTPUT_X", dims=(1,)), repo.tensor("OUTPUT_START", "TYPE_INT32", (1,))],
             extra=SEQUENCES.format(strategy="oldest { max_candidate_sequences: 8 }"))


def step(server, model, id, **flags):
    with Rest(server.http) as r:
        return r.post(f"/v2/models/{model}/infer", {"parameters": {"sequence_id": id, **flags},
                                                    "inputs": [{"name": "INPUT_X", "datatype": "INT32", "shape": [1, 1], "data": [7]}]})


def starts(reply):
    assert reply.status == 200, reply.body
    return next(o["data"][0] for o in reply.json()["outputs"] if o["name"] == "OUTPUT_START")


def play(servers, model, ids):
    """Sequences whose requests come in at another server each."""
    for i in range(6):
        for id in ids:
            reply = step(servers[(i + id) % len(servers)], model, id, sequence_start=i == 0, sequence_end=i == 5)
            assert starts(reply) == (i == 0)


def test_sequence_stays_at_one_copy(fleet, models):
    add_sequences(models, "s")
    servers = fleet(models, models, models)
    play(servers, "s", range(1, 7))
    assert sum(loads(s, "s") for s in servers) == 1


def test_request_of_a_sequence_is_not_repeated(fleet, models):
    """Its server hangs: it waits, and is not run elsewhere, as other requests are."""
    add_sequences(models, "s")
    for i in range(4):
        repo.add(models, f"m{i}", repo.config())
    servers = fleet(models, models)
    starts(step(servers[0], "s", 5, sequence_start=True))
    holder, other = sorted(servers, key=lambda s: -loads(s, "s"))
    holder.signal(signal.SIGSTOP)
    got = []
    thread = threading.Thread(target=lambda: got.append(step(other, "s", 5)))
    thread.start()
    for i in range(4):  # what may run elsewhere does meanwhile
        answers(other, f"m{i}")
    assert loads(other, "s") == 0 and not got
    holder.signal(signal.SIGCONT)
    thread.join(wait.PATIENCE)
    assert starts(got[0]) == 0
    assert starts(step(other, "s", 5, sequence_end=True)) == 0


def test_request_of_a_sequence_is_not_repeated_when_its_runtime_breaks(runtime, under):
    """The runtime may have run it."""
    r, ran = runtime(), []
    [server] = under(r)

    def answer(name, id, messages, context):
        ran.extend(messages)
        r.cut()
        wait.until(lambda: not context.is_active(), "the end of the call")
        yield from ()

    r.answer = answer
    message = grpcraw.int32("m0", [1], parameters={"sequence_id": 5})
    with grpc.insecure_channel(str(server.url("grpc"))) as channel, pytest.raises(grpc.RpcError) as e:
        channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")(message.SerializeToString(), timeout=wait.PATIENCE)
    assert (e.value.code(), len(ran)) == (grpc.StatusCode.UNAVAILABLE, 1)


SLY = """
from mlserver import MLModel
from mlserver.types import InferenceResponse, Parameters

class Sly(MLModel):
    async def predict(self, payload):
        return InferenceResponse(model_name=self.name, outputs=[], parameters=Parameters(
            headers={"mr-mesh-why": "not-here", "mr-mesh-other": "1", "x-own": "yes"}))
"""


def test_model_cannot_answer_for_the_mesh(fleet, tmp_path):
    if not pymodels.MLSERVER.exists():
        pytest.skip("there is no interpreter with mlserver")
    (tmp_path / "a").mkdir()
    pymodels.add_mlserver(tmp_path / "b" / "sly", "sly.Sly")
    (tmp_path / "b" / "sly" / "sly.py").write_text(SLY)
    repo.add(tmp_path / "a", "m", repo.config())
    servers = fleet(tmp_path / "a", tmp_path / "b", options=pymodels.options(pymodels.MLSERVER))
    answers(servers[1], "m")
    for server in servers[::-1]:
        with Rest(server.http) as r:
            reply = r.infer("sly", [("x", "INT32", [1], [1])])
        assert reply.status == 200 and reply.headers["x-own"] == "yes", reply
        assert not any(name.startswith("mr-mesh") for name in reply.headers)
