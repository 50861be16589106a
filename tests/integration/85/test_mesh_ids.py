"""Models named by ids: in the metadata of gRPC calls, or in a field that the configuration of the data plane names."""
import json

import grpc
import pytest
from tritonclient.grpc import service_pb2 as pb

from lib import grpcraw, repo, wait
from lib.grpcraw import Grpc
from lib.services.mesh import joined, own_repositories
from lib.services.runtime import data, number

INFER = "inference.GRPCInferenceService/ModelInfer"


def infer(server, metadata=(), model="", timeout=wait.PATIENCE):
    with Grpc(server.url("grpc")) as g:
        answer = g.infer(grpcraw.int32(model, [7, 8, 9]), metadata=metadata, timeout=timeout)
    assert answer.raw_output_contents[0] == bytes([7, 0, 0, 0, 8, 0, 0, 0, 9, 0, 0, 0])
    return answer.model_name


def refusal(server, metadata=(), model=""):
    with pytest.raises(grpc.RpcError) as e:
        infer(server, metadata, model)
    return e.value.code(), e.value.details()


@pytest.mark.parametrize("key, value", [("mm-model-id", "of0-0"), ("mm-model-id-bin", b"of0-0"), ("tas-model-id", "of0-0")])
def test_id_in_metadata_names_the_model(fleet, tmp_path, key, value):
    servers = fleet(*own_repositories(tmp_path, 2, models=1))
    for server in servers * 2:  # a model that is elsewhere, or loaded here
        assert infer(server, [(key, value)]) == "of0-0"
        assert infer(server, [(key, value)], model="another") == "of0-0"  # it counts more than the name
        with Grpc(server.url("grpc")) as g:
            assert g.stub.ModelMetadata(pb.ModelMetadataRequest(), metadata=[(key, value)]).name == "of0-0"
            assert g.stub.ModelConfig(pb.ModelConfigRequest(), metadata=[(key, value)]).config.name == "of0-0"


def test_ids_that_are_wrong_are_refused(fleet, models):
    repo.add(models, "m", repo.config())
    [server] = fleet(models)
    invalid = grpc.StatusCode.INVALID_ARGUMENT
    code, text = refusal(server, [("mm-model-id", "m"), ("mm-vmodel-id", "v")])
    assert code == invalid and "mm-model-id" in text and "mm-vmodel-id" in text
    for key in ["mm-model-id", "mm-vmodel-id", "tas-model-id"]:
        code, text = refusal(server, [(key, "")], model="m")
        assert code == invalid and key in text and "empty" in text
    code, text = refusal(server, [("mm-model-id-bin", b"")])
    assert code == invalid and "empty" in text
    code, text = refusal(server, [("mm-model-id", "x" * 600)])
    assert code == invalid and "512" in text
    code, text = refusal(server, [("mm-model-id-bin", b"\xff\xfe")])
    assert code == invalid and "UTF-8" in text
    code, text = refusal(server, [("mm-model-id", "nobody")])
    assert code == grpc.StatusCode.NOT_FOUND and "nobody" in text
    code, text = refusal(server, [("mm-vmodel-id", "nobody")])
    assert code == grpc.StatusCode.NOT_FOUND and "vmodel 'nobody'" in text
    assert infer(server, [("mm-model-id", "m"), ("mm-model-id-bin", b"m"), ("mm-balanced", "true")]) == "m"  # one, in two forms


def test_calls_that_name_no_model_are_invalid(fleet, models):
    repo.add(models, "m", repo.config())
    [server] = fleet(models)
    with Grpc(server.url("grpc")) as g:
        for call, message in ((g.stub.ModelInfer, grpcraw.int32("", [1])), (g.stub.ModelMetadata, pb.ModelMetadataRequest()),
                              (g.stub.ModelConfig, pb.ModelConfigRequest(version="1")), (g.stub.ModelReady, pb.ModelReadyRequest()),
                              (g.stub.ModelReady, pb.ModelReadyRequest(version="1"))):
            with pytest.raises(grpc.RpcError) as e:
                call(message, timeout=wait.PATIENCE)
            assert e.value.code() == grpc.StatusCode.INVALID_ARGUMENT and "names no model" in e.value.details()
        assert g.stub.ServerMetadata(pb.ServerMetadataRequest(), timeout=wait.PATIENCE).name
    late = grpcraw.int32("", [7, 8, 9] * 100_000).SerializeToString() + pb.ModelInferRequest(model_name="m").SerializeToString()
    with grpc.insecure_channel(server.url("grpc"), options=grpcraw.NO_LIMIT) as channel:  # the name after the tensors
        assert channel.unary_unary("/" + INFER)(late, timeout=wait.PATIENCE)


def test_compressed_request_with_an_id(fleet, tmp_path):
    servers = fleet(*own_repositories(tmp_path, 2, models=1))
    for server in servers:
        with Grpc(server.url("grpc")) as g:
            answer = g.infer(grpcraw.int32("", [1] * 100_000), metadata=[("mm-model-id", "of0-0")], compression=grpc.Compression.Gzip)
        assert answer.model_name == "of0-0" and len(answer.raw_output_contents[0]) == 400_000


def config(path, **other):
    return json.dumps({"rpcConfigs": {INFER: {"idExtractionPath": path}}, **other})


def test_id_at_a_field_of_the_message_counts_more_than_metadata(fleet, models, tmp_path):
    for name in ["a", "b"]:
        repo.add(models, name, repo.config())
    [server] = fleet(models, options=["--mesh-dataplane-config=" + config([3], allowOtherRpcs=True)])  # the request's own id
    with Grpc(server.url("grpc")) as g:
        answer = g.infer(grpcraw.int32("b", [1], id="a"), metadata=[("mm-model-id", "b")])
        assert answer.model_name == "a"
        assert g.infer(grpcraw.int32("b", [1])).model_name == "b"


def test_methods_that_the_configuration_does_not_name_are_refused(fleet, models):
    repo.add(models, "m", repo.config())
    [server] = fleet(models, options=["--mesh-dataplane-config=" + config([1])])
    assert infer(server, model="m") == "m"
    with Grpc(server.url("grpc")) as g, pytest.raises(grpc.RpcError) as e:
        g.stub.ModelMetadata(pb.ModelMetadataRequest(name="m"))
    assert e.value.code() == grpc.StatusCode.UNIMPLEMENTED and "data plane" in e.value.details()


def test_configuration_is_read_again(registry, start, models, tmp_path):
    repo.add(models, "m", repo.config())
    file = tmp_path / "dataplane.json"
    file.write_text('{"allowOtherRpcs": true}')
    server = start(models, f"--mesh={registry}", mode=None, env={"MM_DATAPLANE_CONFIG_PATH": str(file)}, ready=False)
    joined(server.wait_ready())
    assert infer(server, model="m") == "m"
    file.write_text('{"allowOtherRpcs": tru}')
    wait.until(lambda: any("what was in force stays" in str(e) for e in server.events()), "the log line")
    assert infer(server, model="m") == "m"
    file.write_text('{"rpcConfigs": {}}')
    wait.until(lambda: any("is in force" in str(e) for e in server.events()), "the log line")
    code, text = refusal(server, model="m")
    assert code == grpc.StatusCode.UNIMPLEMENTED


@pytest.mark.parametrize("text, says", [
    ('{"rpcConfig": {}}', "'rpcConfig' is not rpcConfigs or allowOtherRpcs"), ('{"rpcConfigs": {"/a/b": {}}}', "package.Service/Method"),
    ('{"rpcConfigs": {"a/b": {"idExtractionPath": [0]}}}', "field number 0"), ('{"rpcConfigs": {"a/b": {"idExtractionPath": "1"}}}', "offset"),
    ('{"rpcConfigs": {"a/b": {"idExtractionPath": [1,1,1,1,1,1,1,1,1]}}}', "more than 8"), ("/nonexistent/file", "No such file"),
])
def test_configuration_that_is_wrong_ends_the_start(registry, start, models, text, says):
    repo.add(models, "m", repo.config())
    server = start(models, f"--mesh={registry}", f"--mesh-dataplane-config={text}", mode=None, ready=False)
    assert server.wait_exit() == 1
    server.end_anyhow()
    assert "--mesh-dataplane-config" in server.err() and says in server.err()


def test_alias_in_metadata_or_message(fleet, tmp_path):
    rule = json.dumps({"rpcConfigs": {INFER: {"idExtractionPath": [1], "vModelId": True}}, "allowOtherRpcs": True})
    servers = fleet(*own_repositories(tmp_path, 2, models=2), options_of=lambda i: [f"--mesh-dataplane-config={rule}"] if i else [])
    channel = grpc.insecure_channel(str(servers[0].url("grpc")))
    for target in ["of0-0", "of1-1"]:
        channel.unary_unary("/mmesh.ModelMesh/setVModel")(data(1, "v") + data(2, target) + number(8, 1), timeout=wait.PATIENCE)
        assert infer(servers[0], [("mm-vmodel-id", "v")]) == target
        wait.until(lambda: infer(servers[1], model="v") == target, "the other server to know it")
    channel.close()
    code, text = refusal(servers[1], model="of0-0")  # the message names aliases there
    assert code == grpc.StatusCode.NOT_FOUND and "vmodel 'of0-0'" in text


def test_several_models_of_ours(fleet, tmp_path):
    servers = fleet(*own_repositories(tmp_path, 2, models=2))
    for server in servers:
        with Grpc(server.url("grpc")) as g:
            answer = g.infer(grpcraw.int32("", [1, 2]), metadata=[("mm-model-id", "of0-0"), ("mm-model-id", "of1-0")])
        assert answer.model_name == "of1-0"  # merged: of single fields the last, of repeated ones all
        assert len(answer.outputs) == 2 and len(answer.raw_output_contents) == 2
