"""Either protocol may be asked for on either port."""
import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http

from lib import grpcraw
from lib.grpcraw import Grpc
from lib.rest import Rest


def test_rest_on_the_grpc_port(server):
    with Rest(server.grpc) as client:
        assert client.get("/v2").ok().json()["name"] == "triton"
        assert client.infer("flat_int32", [("INPUT0", "INT32", [2], [1, 2])]).ok().json()["outputs"][0]["data"] == [1, 2]


def test_grpc_on_the_http_port(server):
    with Grpc(server.url("http")) as client:
        answer = client.infer(grpcraw.int32("flat_int32", [1, 2]))
    assert np.frombuffer(answer.raw_output_contents[0], "<i4").tolist() == [1, 2]


@pytest.mark.parametrize("module, port", [(tritonclient.http, "grpc"), (tritonclient.grpc, "http")], ids=["http", "grpc"])
def test_tritonclient_on_the_other_port(server, module, port):
    client = module.InferenceServerClient(server.url(port))
    x = module.InferInput("INPUT0", [3], "INT32")
    x.set_data_from_numpy(np.array([1, 2, 3], np.int32))
    assert client.infer("flat_int32", [x]).as_numpy("OUTPUT0").tolist() == [1, 2, 3]
    client.close()


def test_metrics_have_a_port_of_their_own(server):
    with Rest(server.metrics) as client:
        assert client.get("/metrics").status == 200
        assert client.get("/v2").status == 404
