"""Files come from inside the repositories, whatever a name, a configuration, a link or a model file contains."""
import contextlib
import os

import numpy as np
import pytest
from onnx import TensorProto, helper

from lib import onnxgen, repo, wait
from lib.control import Control, GrpcControl
from lib.services.runtime import varint

SECRET = b"TOP-SECRET" * 40


@pytest.fixture
def secret(tmp_path):
    file = tmp_path / "secret.bin"
    file.write_bytes(SECRET)
    return file


@pytest.fixture
def control(models, start):
    with Control(start(models, mode="explicit")) as c:
        yield c


def refused(control, model, *words):
    """The reason, which does not disclose the content of the file. The server keeps serving."""
    reply = control.load(model)
    assert reply.status >= 400 and SECRET.decode()[:10] not in reply.error, reply
    assert all(w in reply.error for w in words), reply.error
    assert not control.model_ready(model)
    repo.add(control.models, "good")
    assert control.load("good").status == 200
    return reply.error


@pytest.fixture(autouse=True)
def keep(control, models):
    control.models = models


# ---- names ----

NAMES = ["..", ".", "a/b", "../m", "m/../m", "/etc", "m/", "m\x00", "m\nx", "\x7f", "m\x00/../../x", "x" * 300, " ", "%2e%2e", "..%2fm", "."*3]


@pytest.mark.parametrize("name", NAMES, ids=repr)
def test_names_of_load_and_unload(models, start, name):
    (models.parent / "m").mkdir()
    server = start(models, mode="explicit")
    grpc = GrpcControl(server)
    code, text = grpc.load(name)
    assert code in ("INVALID_ARGUMENT", "INTERNAL", "NOT_FOUND"), (code, text)
    grpc.unload(name)
    grpc.close()
    with Control(server) as c:
        assert c.index() == []
        assert c.ready()


@pytest.mark.parametrize("path", ["/v2/repository/models/../load", "/v2/repository/models/%2e%2e/load", "/v2/repository/models/..%2fm/load",
                                  "/v2/repository/models/m/../../load", "/v2/models/../../etc/passwd", "/v2/models/%2e%2e/config"])
def test_paths_of_requests(control, path):
    assert control.rest.post(path, b"").status >= 400
    assert control.rest.get(path).status >= 400
    assert control.ready()


# ---- links and names in configurations ----


@pytest.mark.parametrize("place", ["", "1", "config.pbtxt", "1/model.onnx", "labels.txt", "1/other.bin", "1/folder", "warmup"])
def test_links_that_leave(control, models, tmp_path, secret, place):
    """A model whose folder, version, config, model, labels or any other file lies elsewhere."""
    elsewhere = repo.add(tmp_path / "elsewhere", "m", files={"labels.txt": "x\n", "1/model.onnx": onnxgen.adder(1), "1/folder/x": b"x",
                                                            "1/other.bin": SECRET, "warmup/x": SECRET})
    if place:
        repo.add(models, "m", files={"1/model.onnx": onnxgen.adder(1)})
    at = models / "m" / place if place else models / "m"
    if place == "1":
        (at / "model.onnx").unlink()
        at.rmdir()
    elif at.exists():
        at.unlink()
    at.symlink_to(elsewhere / place if place else elsewhere)
    refused(control, "m", "repository", "--allow-links-to=DIR")


@pytest.mark.few(6)
@pytest.mark.parametrize("mode", ["explicit", "none", "poll"])
@pytest.mark.parametrize("place", ["", "1", "config.pbtxt", "1/model.onnx", "labels.txt", "1/w.bin"])
def test_links_that_may_leave(models, start, tmp_path, place, mode):
    """To the folder of --allow-links-to, which may be named by a link itself, and nowhere else."""
    elsewhere = repo.add(tmp_path / "elsewhere", "deep/m", "max_batch_size: 0", files={"labels.txt": "x\n", "1/model.onnx": onnxgen.adder(1), "1/w.bin": b"x"})
    (tmp_path / "name").symlink_to(tmp_path / "elsewhere")
    if place:
        repo.add(models, "m", "max_batch_size: 0", files={"1/model.onnx": onnxgen.adder(1)})
    at = models / "m" / place if place else models / "m"
    if place == "1":
        (at / "model.onnx").unlink()
        at.rmdir()
    elif at.exists():
        at.unlink()
    at.symlink_to(elsewhere / place if place else elsewhere)
    repo.add(tmp_path / "beyond", "out")
    (models / "out").symlink_to(tmp_path / "beyond" / "out")
    server = start(models, "--exit-on-error=false", "--strict-readiness=false", f"--allow-links-to={tmp_path / 'name'}", mode=mode)
    with Control(server) as c:
        if mode == "explicit":
            assert c.load("m").status == 200
            assert "--allow-links-to=DIR" in c.load("out").error
        wait.until(lambda: c.model_ready("m"), "m")
        assert c.answer("m")[0] == [2, 3]
        assert not c.model_ready("out")


def test_changes_of_a_link_elsewhere_are_followed(models, start, tmp_path):
    """A shared volume: the operator turns the link to another folder."""
    for n in (1, 2):
        repo.add(tmp_path / "elsewhere", f"m{n}", "max_batch_size: 0", files={"1/model.onnx": onnxgen.adder(n)})
    (models / "m").symlink_to(tmp_path / "elsewhere" / "m1")
    server = start(models, f"--allow-links-to={tmp_path / 'elsewhere'}", "--repository-poll-secs=1", mode="poll")
    with Control(server) as c:
        assert c.answer("m")[0] == [2, 3]
        (models / "n").symlink_to(tmp_path / "elsewhere" / "m2")
        (models / "n").replace(models / "m")
        wait.until(lambda: c.answer("m")[0] == [3, 4], "the other folder")


@pytest.mark.parametrize("what", ["absent", "a file"])
def test_folder_of_links_that_is_none(models, start, tmp_path, what):
    if what == "a file":
        (tmp_path / what).write_text("x")
    server = start(models, f"--allow-links-to={tmp_path / what}", ready=False)
    server.checked = True
    assert server.wait_exit() == 1
    assert "--allow-links-to" in server.err().splitlines()[-1] and what in server.err().splitlines()[-1]


def test_weights_elsewhere(models, start, tmp_path):
    """A model whose folder is a link, with external data beside it, and one whose data leads further."""
    data = np.arange(100, dtype="<f4")
    repo.add(tmp_path / "elsewhere", "m", "", files={"1/model.onnx": as_initializer("w.bin"), "1/w.bin": data.tobytes()})
    (models / "m").symlink_to(tmp_path / "elsewhere" / "m")
    folder = repo.add(tmp_path / "elsewhere", "n", "", files={"1/model.onnx": as_initializer("w.bin")})
    (tmp_path / "w.bin").write_bytes(data.tobytes())
    (folder / "1" / "w.bin").symlink_to(tmp_path / "w.bin")
    (models / "n").symlink_to(folder)
    server = start(models, f"--allow-links-to={tmp_path / 'elsewhere'}", mode="explicit")
    with Control(server) as c:
        assert c.load("m").status == 200
        assert c.rest.infer("m", [("INPUT0", "FP32", [100], [0.0] * 100)]).ok().json()["outputs"][0]["data"] == data.tolist()
        assert "--allow-links-to=DIR" in c.load("n").error


@pytest.mark.parametrize("hidden", [False, True])
@pytest.mark.parametrize("field", ["label_filename", "input_data_file", "default_model_filename"])
@pytest.mark.parametrize("way", ["absolute", "dots", "link"])
def test_names_in_configurations(control, models, tmp_path, secret, field, way, hidden):
    """Scans of a folder skip hidden names, so a link there is found only by its name."""
    name = {"absolute": str(secret), "dots": os.path.relpath(secret, models / "m" / "1"), "link": ".x" if hidden else "x"}[way]
    if way != "link" and hidden:
        name = "./" + name
    extra, output, backend = "", "", "identity"
    if field == "label_filename":
        output = f'label_filename: "{name}"'
    elif field == "input_data_file":
        extra = ('model_warmup { name: "w" inputs { key: "INPUT0" value { data_type: TYPE_INT32 dims: [100] '
                 f'input_data_file: "{name}" }} }} }}')
    else:
        extra, backend = f'default_model_filename: "{name}"', "onnxruntime"
    repo.add(models, "m", repo.config(backend=backend, outputs=[repo.tensor("OUTPUT0", extra=output)], extra=extra))
    place = {"label_filename": "", "input_data_file": "warmup", "default_model_filename": "1"}[field]
    if way == "link":
        (models / "m" / place).mkdir(exist_ok=True)
        (models / "m" / place / name).symlink_to(secret)
    refused(control, "m")


def test_hidden_folder_as_the_model_file(control, models, tmp_path):
    """The name is inside; what the backend finds in it is not."""
    target = tmp_path / "model.onnx"
    target.write_bytes(onnxgen.adder(1))
    repo.add(models, "m", onnxgen.ADDER_CONFIG + 'default_model_filename: ".f"')
    (models / "m" / "1" / ".f").mkdir()
    (models / "m" / "1" / ".f" / "model.onnx").symlink_to(target)
    refused(control, "m", "leads out of the repository")


def test_pipes_in_the_place_of_files(control, models):
    repo.add(models, "m", repo.config(extra='model_warmup { name: "w" inputs { key: "INPUT0" value { data_type: TYPE_INT32 dims: [100] '
                                            'input_data_file: "pipe" } } }'))
    (models / "m" / "warmup").mkdir()
    os.mkfifo(models / "m" / "warmup" / "pipe")
    refused(control, "m", "not a regular file")


@pytest.mark.parametrize("backend", ["../identity", "/etc/passwd", "a/b", "..", "identity.so", "iden tity"])
def test_names_of_backends(control, models, backend):
    repo.add(models, "m", backend=backend)
    refused(control, "m")


# ---- what a model file refers to ----


def weights(location, **fields):
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[100], data_location=TensorProto.EXTERNAL)
    for key, value in {"location": location, "offset": "0", "length": "400", **fields}.items():
        tensor.external_data.add(key=key, value=value)
    return tensor


def graph(nodes, initializers=()):
    return helper.make_graph(nodes, "g", [helper.make_tensor_value_info("INPUT0", TensorProto.FLOAT, [100])],
                             [helper.make_tensor_value_info("OUTPUT0", TensorProto.FLOAT, [100])], list(initializers))


def save(g, functions=()):
    return helper.make_model(g, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("f", 1)], ir_version=8,
                             functions=list(functions)).SerializeToString()


def as_initializer(location):
    return save(graph([helper.make_node("Add", ["INPUT0", "w"], ["OUTPUT0"])], [weights(location)]))


def as_constant(location):
    return save(graph([helper.make_node("Constant", [], ["w"], value=weights(location)), helper.make_node("Add", ["INPUT0", "w"], ["OUTPUT0"])]))


def in_a_branch(location):
    branch = helper.make_graph([helper.make_node("Constant", [], ["b"], value=weights(location))], "b", [],
                               [helper.make_tensor_value_info("b", TensorProto.FLOAT, [100])])
    yes = helper.make_tensor("c", TensorProto.BOOL, [], [1])
    return save(graph([helper.make_node("If", ["c"], ["w"], then_branch=branch, else_branch=branch),
                       helper.make_node("Add", ["INPUT0", "w"], ["OUTPUT0"])], [yes]))


def in_a_function(location):
    function = helper.make_function("f", "Secret", [], ["w"], [helper.make_node("Constant", [], ["w"], value=weights(location))],
                                    [helper.make_opsetid("", 17)])
    return save(graph([helper.make_node("Secret", [], ["w"], domain="f"), helper.make_node("Add", ["INPUT0", "w"], ["OUTPUT0"])]), [function])


def unused(location):
    return save(graph([helper.make_node("Identity", ["INPUT0"], ["OUTPUT0"])], [weights(location)]))


PLACES = [as_initializer, as_constant, in_a_branch, in_a_function, unused]


@pytest.mark.parametrize("way", ["absolute", "dots", "link", "hidden link", "linked folder", "in memory"])
def test_external_data_that_leaves(control, models, tmp_path, secret, way):
    for place in PLACES:
        name = place.__name__
        folder = repo.add(models, name, "", versions=(1,)) / "1"
        location = {"absolute": str(secret), "dots": os.path.relpath(secret, folder), "link": "w.bin", "hidden link": ".w.bin",
                    "linked folder": ".d/secret.bin", "in memory": "*/_ORT_MEM_ADDR_/*"}[way]
        if "link" in way:
            at = folder / location.split("/")[0]
            at.symlink_to(tmp_path if "/" in location else secret)
        (folder / "model.onnx").write_bytes(place(location))
        refused(control, name, "repository" if way == "link" else "external data")


@pytest.mark.parametrize("kind", [Control, GrpcControl])
def test_external_data_of_uploaded_models(models, start, kind):
    server = start(models, "--allow-backend=onnxruntime", mode="explicit")
    with contextlib.closing(kind(server)) as loader:
        for place in (PLACES[0], PLACES[-1]):
            for location in ("../../../../etc/passwd", "/etc/passwd", "/proc/self/environ", "../other.bin", "1/../../../x", "", "a\0b"):
                answer = loader.load("m", {"backend": "onnxruntime", "max_batch_size": 0}, {"1/model.onnx": place(location)})
                error = answer[1] if kind is GrpcControl else answer.error
                assert "external data" in error or "not a valid ONNX model" in error, (place, location, error)


def test_external_data_within_the_repository(control, models):
    data = np.arange(100, dtype="<f4")
    repo.add(models, "m", "", files={"1/model.onnx": as_initializer("w.bin"), "1/w.bin": data.tobytes()})
    repo.add(models, "deep", "", files={"1/model.onnx": in_a_branch("d/w.bin"), "1/d/w.bin": data.tobytes()})
    for model in ("m", "deep"):
        assert control.load(model).status == 200
        reply = control.rest.infer(model, [("INPUT0", "FP32", [100], [0.0] * 100)])
        assert reply.ok().json()["outputs"][0]["data"] == data.tolist()


def test_external_data_that_is_no_file(control, models):
    folder = repo.add(models, "m", "", files={"1/model.onnx": as_initializer("w.bin")})
    refused(control, "m", "external data")
    os.mkfifo(folder / "1" / "w.bin")
    refused(control, "m", "not a regular file")


def test_fields_that_readers_see_differently(control, models, secret):
    """A tag of more than 32 bits, which some readers cut: the graph would be hidden from us and not from them."""
    model = as_initializer(str(secret))
    at = model.index(varint(7 << 3 | 2), 2)
    whole = model[:at] + varint(7 << 3 | 2 | 1 << 32) + model[at + 1:]
    repo.add(models, "m", "", files={"1/model.onnx": whole})
    refused(control, "m", "not a valid ONNX model")


def test_nesting_is_bounded(control, models):
    inner = b""
    for _ in range(5000):  # graph > node > attribute > graph
        for field in (6, 5, 1):
            inner = varint(field << 3 | 2) + varint(len(inner)) + inner
    repo.add(models, "m", "", files={"1/model.onnx": varint(7 << 3 | 2) + varint(len(inner)) + inner})
    refused(control, "m", "not a valid ONNX model")


# ---- who may load ----


@pytest.mark.parametrize("mode", ["none", "poll"])
@pytest.mark.parametrize("kind", ["rest", "grpc"])
def test_load_and_unload_need_the_explicit_mode(models, start, mode, kind):
    repo.add(models, "m")
    server = start(models, mode=mode)
    loader = GrpcControl(server) if kind == "grpc" else Control(server)
    for answer in (loader.load("m"), loader.load("m", {"backend": "identity"}, {"1/x": b""}), loader.unload("m")):
        assert "explicit model load / unload is not allowed" in (answer[1] if kind == "grpc" else answer.error)
    loader.close()
    with Control(server) as c:
        assert c.model_ready("m")
