"""Models that must not load: each fails alone, with a reason in the answer, the index and the log; the others serve."""
import re
from dataclasses import dataclass, field

import onnx
import pytest
from onnx import TensorProto, helper

from lib import repo, wait
from lib.control import Control
from lib.repo import config, tensor
from lib.server import Server


@dataclass
class Bad:
    """A model and the expected reason of its failure (a regular expression, case is ignored)."""
    name: str
    reason: str
    text: str = None  # config.pbtxt; "" for none
    stock: str = None  # instead: a model of tests/models/repo
    files: dict = field(default_factory=dict)


def with_extra(extra, **kw):
    return config(extra=extra, **{"max_batch_size": 4, **kw})


def warmup(batch=1, key="INPUT0", dtype="TYPE_INT32", data="zero_data: true"):
    return (f'model_warmup {{ name: "sample" batch_size: {batch} '
            f'inputs {{ key: "{key}" value {{ data_type: {dtype} dims: [4] {data} }} }} }}')


BAD = [
    # files
    Bad("broken", r"model\.onnx|protobuf", stock="broken"),
    Bad("truncated", r"model\.onnx|protobuf", stock="truncated"),
    Bad("disagree_type", r"INPUT0.*(FP32|INT32)", stock="disagree_type"),
    Bad("disagree_name", r"INPUT_X|INPUT1", stock="disagree_name"),
    Bad("disagree_batch", r"batch", stock="disagree_batch"),
    Bad("complex64", r"complex|type", stock="complex64"),
    Bad("sequence", r"sequence", stock="sequence"),
    Bad("no-model-file", r"model\.onnx", text='platform: "onnxruntime_onnx"'),
    Bad("empty-model-file", r"model\.onnx|protobuf|empty", text='platform: "onnxruntime_onnx"', files={"1/model.onnx": b""}),
    Bad("nothing-at-all", r"backend|platform", text=""),
    # config texts
    Bad("syntax", r"config\.pbtxt.*\b2:|line 2|:2:", text='backend: "identity"\nmax_batch_size ] 4\n'),
    Bad("open-string", r"2:|line 2", text='backend: "identity"\nname: "syntax\n'),
    Bad("unknown-field", r"no_such_field", text='backend: "identity"\nno_such_field: 1\n'),
    Bad("unknown-enum", r"TYPE_NOSUCH", text=config(inputs=[tensor("INPUT0", "TYPE_NOSUCH")])),
    Bad("number-too-large", r"max_batch_size|99999999999", text=config(max_batch_size=99999999999)),
    Bad("text-for-number", r"max_batch_size|number|integer|\d+:\d+", text='backend: "identity"\nmax_batch_size: "four"\n'),
    Bad("given-twice", r"max_batch_size|twice|\d+:\d+", text=config() + "\nmax_batch_size: 3\n"),
    Bad("binary", r"config\.pbtxt|\d+:\d+", files={"config.pbtxt": bytes(range(256)) * 10}, text=""),
    Bad("deep", r"config\.pbtxt|deep|nest|\d+:\d+", text="input { " * 5000),
    # values of the config
    Bad("other-name", r"other-name.*expected|another", text='name: "another"\n' + config()),
    Bad("unknown-backend", r"nosuchbackend", text=config(backend="nosuchbackend")),
    Bad("backend-with-path", r"backend", text=config(backend="../../identity")),
    Bad("negative-batch", r"max_batch_size", text=config(max_batch_size=-1)),
    Bad("zero-dim", r"INPUT0.*dim", text=config(inputs=[tensor("INPUT0", dims=(0,))])),
    Bad("negative-dim", r"INPUT0.*dim", text=config(inputs=[tensor("INPUT0", dims=(-2,))])),
    Bad("no-type", r"INPUT0.*data_type|INPUT0.*type", text=config(inputs=['{ name: "INPUT0" dims: [1] }'])),
    Bad("no-name", r"name", text=config(inputs=["{ data_type: TYPE_FP32 dims: [1] }"])),
    Bad("same-input-twice", r"INPUT0", text=config(inputs=[tensor("INPUT0"), tensor("INPUT0")])),
    Bad("no-output", r"output", text=config(outputs=[])),
    Bad("bad-reshape", r"reshape", text=config(inputs=[tensor("INPUT0", dims=(4,), extra="reshape { shape: [3] }")],
                                               outputs=[tensor("OUTPUT0", dims=(4,))])),
    Bad("identity-types", r"OUTPUT0.*type", text=config(outputs=[tensor("OUTPUT0", "TYPE_FP32")])),
    Bad("preferred-too-large", r"preferred", text=with_extra("dynamic_batching { preferred_batch_size: [8] }")),
    Bad("preferred-zero", r"preferred", text=with_extra("dynamic_batching { preferred_batch_size: [0] }")),
    Bad("default-priority", r"priority level", text=with_extra("dynamic_batching { priority_levels: 2 default_priority_level: 3 }")),
    Bad("no-default-priority", r"priority level", text=with_extra("dynamic_batching { priority_levels: 2 }")),
    Bad("policy-of-no-level", r"priority", text=with_extra(
        "dynamic_batching { priority_levels: 2 default_priority_level: 1 priority_queue_policy { key: 9 value { max_queue_size: 1 } } }")),
    Bad("ordering-and-priorities", r"preserve_ordering", text=with_extra(
        "dynamic_batching { preserve_ordering: true priority_levels: 2 default_priority_level: 1 }")),
    Bad("ordering-and-delay", r"preserve_ordering", text=with_extra(
        "dynamic_batching { preserve_ordering: true default_queue_policy { timeout_action: DELAY default_timeout_microseconds: 5 } }")),
    Bad("gpu", r"GPU", text=config(extra="instance_group { kind: KIND_GPU }")),
    Bad("too-many-instances", r"instance group", text=config(extra="instance_group { count: 100000 kind: KIND_CPU }")),
    Bad("labels-missing", r"nosuch\.txt", text=config(outputs=[tensor("OUTPUT0", extra='label_filename: "nosuch.txt"')])),
    Bad("labels-outside", r"label", text=config(outputs=[tensor("OUTPUT0", extra='label_filename: "../outside.txt"')])),
    Bad("file-outside", r"default_model_filename|outside|leaves", 
        text='platform: "onnxruntime_onnx"\ndefault_model_filename: "../../../simple/1/model.onnx"'),
    # backends
    Bad("fail-open", r"failed as configured", text=config(backend="fault", parameters={"fail_open": "true"})),
    Bad("fail-second-instance", r"failed as configured", text=config(
        backend="fault", parameters={"fail_instance": "1"}, extra="instance_group { count: 2 kind: KIND_CPU }")),
    Bad("bad-parameter", r"delay_ms", text=config(backend="fault", parameters={"delay_ms": "soon"})),
    # features that are not there
    Bad("ensemble", r"contains models that are not available or ambiguous: nothing", text=with_extra(
        'platform: "ensemble"\nensemble_scheduling { step { model_name: "nothing" model_version: -1 '
        'input_map { key: "INPUT0" value: "INPUT0" } output_map { key: "OUTPUT0" value: "OUTPUT0" } } }').replace('backend: "identity"\n', "")),
    Bad("iterative-sequence", r"iterative sequences", text=with_extra("sequence_batching { iterative_sequence: true }")),
    Bad("initial-state", r"data_file 'none'", text=with_extra(
        'sequence_batching { state { input_name: "INPUT_S" output_name: "OUTPUT_S" data_type: TYPE_INT32 dims: 1 '
        'initial_state { name: "n" data_type: TYPE_INT32 dims: 1 data_file: "none" } } }')),
    Bad("short-initial-state", r"initial_state setting expects 4 bytes, but the data provided from short only has 3 bytes", text=with_extra(
        'sequence_batching { state { input_name: "INPUT_S" output_name: "OUTPUT_S" data_type: TYPE_INT32 dims: 1 '
        'initial_state { name: "n" data_type: TYPE_INT32 dims: 1 data_file: "short" } } }'), files={"initial_state/short": b"abc"}),
    Bad("initial-state-outside", r"data_file", text=with_extra(
        'sequence_batching { state { input_name: "INPUT_S" output_name: "OUTPUT_S" data_type: TYPE_INT32 dims: 1 '
        'initial_state { name: "n" data_type: TYPE_INT32 dims: 1 data_file: "../../secret" } } }')),
    Bad("response-cache", r"response cache", text=with_extra("response_cache { enable: true }")),
    Bad("tensorrt", r"tensorrt", text='platform: "tensorrt_plan"\n', files={"1/model.plan": b"x"}),
    Bad("pytorch", r"pytorch", text=config(backend="pytorch"), files={"1/model.pt": b"x"}),
    Bad("repository-agent", r"repository agent", text=with_extra('model_repository_agents { agents { name: "checksum" } }')),
    Bad("ragged", r"ragged", text=with_extra("", inputs=[tensor("INPUT0", extra="allow_ragged_batch: true")])),
    Bad("batch-input", r"ragged|batch_input", text=with_extra(
        'batch_input { kind: BATCH_ELEMENT_COUNT target_name: "N" data_type: TYPE_FP32 source_input: "INPUT0" }')),
    Bad("batch-strategy", r"batching strategy", text=with_extra("", parameters={"TRITON_BATCH_STRATEGY_PATH": "/x.so"})),
    Bad("shape-tensor", r"shape tensor", text=config(inputs=[tensor("INPUT0", extra="is_shape_tensor: true")])),
    Bad("accelerator", r"accelerator", text=with_extra(
        'optimization { execution_accelerators { cpu_execution_accelerator { name: "openvino" } } }')),
    Bad("custom-operators", r"custom operator", text=with_extra('model_operations { op_library_filename: "ops.so" }')),
    # warm-up
    Bad("warmup-unknown-input", r"sample|warm", text=with_extra(warmup(key="NOSUCH"))),
    Bad("warmup-type", r"sample|warm", text=with_extra(warmup(dtype="TYPE_FP32"))),
    Bad("warmup-batch", r"sample|warm", text=with_extra(warmup(batch=9))),
    Bad("warmup-file", r"nosuch\.bin", text=with_extra(warmup(data='input_data_file: "nosuch.bin"'))),
    Bad("warmup-short-file", r"sample|warm|data\.bin", text=with_extra(warmup(data='input_data_file: "data.bin"')),
        files={"warmup/data.bin": b"\0" * 15}),
    Bad("warmup-file-outside", r"warm|sample|outside|leaves", text=with_extra(warmup(data='input_data_file: "../config.pbtxt"'))),
    Bad("warmup-fails", r"failed as configured", text=config(
        backend="fault", max_batch_size=4, parameters={"fail_status": "INTERNAL"}, extra=warmup())),
]


@pytest.fixture(scope="module")
def control(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bad")
    models = folder / "models"
    models.mkdir()
    repo.add(models, "good")
    for bad in BAD:
        if bad.stock:
            repo.stock(models, bad.stock)
        else:
            repo.add(models, bad.name, bad.text, files=bad.files)
    server = Server(folder / "server", [models], mode="explicit").wait_ready()
    with Control(server) as c:
        c.server = server
        assert c.load("good").status == 200
        yield c
    server.stop()


def failures(server, name):
    return [e for e in server.events() if e["event"] == "model.failed" and name in str(e)]


@pytest.mark.parametrize("bad", BAD, ids=[b.name for b in BAD])
def test_does_not_load(control, bad):
    reply = control.load(bad.name)
    assert 400 <= reply.status <= 501, f"loaded: {control.index(bad.name)}"
    assert bad.name in reply.error and re.search(bad.reason, reply.error, re.I | re.S), reply.error
    rows = control.index(bad.name)
    assert rows and all(r.get("state", "UNAVAILABLE") == "UNAVAILABLE" for r in rows)
    assert any(re.search(bad.reason, r.get("reason", ""), re.I | re.S) for r in rows), rows
    assert not control.model_ready(bad.name)
    # Of loads that clients ask for, the log has 20 lines a second: where we were quicker, the next try has its line.
    failed = wait.until(lambda: failures(control.server, bad.name) or not control.load(bad.name), "the log to say it, too", step=0.2)
    assert re.search(bad.reason, failed[-1]["msg"], re.I | re.S), failed
    assert control.answer("good")[0] == [1, 2]


def test_status_of_a_failed_load(control):
    reply = control.load("fail-open")
    assert reply.status == 400
    assert re.search(r"^load failed for model 'fail-open': version 1 .*failed as configured", reply.error), reply.error


def test_can_be_repaired(models, start):
    repo.add(models, "m", "max_batch_size: [")
    with Control(start(models, mode="explicit")) as c:
        assert c.load("m").status != 200
        repo.add(models, "m")
        assert c.load("m").status == 200
        assert c.answer("m")[0] == [1, 2]


# ---- places ----

@pytest.fixture
def outside(tmp_path):
    return repo.add(tmp_path / "elsewhere", "secret")


def test_symlink_of_a_model_that_leaves_the_repository(models, start, outside):
    (models / "link").symlink_to(outside)
    repo.add(models, "good")
    with Control(start(models, mode="explicit")) as c:
        reply = c.load("link")
        assert reply.status != 200 and re.search("symbolic link|symlink|leaves|outside", reply.error), reply.error
        assert c.load("good").status == 200


def test_symlink_of_a_file_that_leaves_the_repository(models, start, tmp_path):
    target = tmp_path / "model.onnx"
    target.write_bytes((repo.STOCK / "simple" / "1" / "model.onnx").read_bytes())
    folder = repo.add(models, "m", (repo.STOCK / "simple" / "config.pbtxt").read_text().replace('"simple"', '"m"'))
    (folder / "1" / "model.onnx").symlink_to(target)
    with Control(start(models, mode="explicit")) as c:
        reply = c.load("m")
        assert reply.status != 200 and re.search("symbolic link|symlink|leaves|outside", reply.error), reply.error


def test_symlink_of_a_config_that_leaves_the_repository(models, start, tmp_path):
    secret = tmp_path / "secret.txt"
    secret.write_text("password: hunter2")
    (models / "m" / "1").mkdir(parents=True)
    (models / "m" / "config.pbtxt").symlink_to(secret)
    with Control(start(models, mode="explicit")) as c:
        reply = c.load("m")
        assert reply.status != 200 and "hunter2" not in reply.error


def test_symlink_within_the_repository(models, start):
    """Versions that share a file by a link are usual."""
    repo.stock(models, "versions")
    file = models / "versions" / "3" / "model.onnx"
    file.unlink()
    file.symlink_to("../1/model.onnx")
    with Control(start(models, mode="explicit")) as c:
        assert c.load("versions").status == 200


def test_folders_of_a_mounted_volume(models, start):
    """Kubernetes mounts config maps so: names that are links into a dated folder beside them."""
    repo.add(models / "..2024_01_01", "m")
    (models / "..data").symlink_to("..2024_01_01")
    (models / "m").symlink_to("..data/m")
    with Control(start(models)) as c:
        assert [r["name"] for r in c.index()] == ["m"]
        assert c.answer("m")[0] == [1, 2]


def test_repository_that_is_a_symlink_itself(models, start, tmp_path):
    repo.add(models, "m")
    link = tmp_path / "link"
    link.symlink_to(models)
    with Control(start(link)) as c:
        assert c.answer("m")[0] == [1, 2]


def test_unreadable_folder(models, start):
    repo.add(models, "good")
    folder = repo.add(models, "closed")
    folder.chmod(0)
    try:
        with Control(start(models, "--exit-on-error=false", without_privileges=True)) as c:
            assert c.answer("good")[0] == [1, 2]
            (row,) = c.index("closed")
            assert row["state"] == "UNAVAILABLE" and re.search("permission", row["reason"], re.I)
    finally:
        folder.chmod(0o755)


def test_config_that_is_a_folder(models, start):
    (models / "m" / "config.pbtxt").mkdir(parents=True)
    (models / "m" / "1").mkdir()
    with Control(start(models, mode="explicit")) as c:
        reply = c.load("m")
        assert reply.status != 200 and "config.pbtxt" in reply.error


@pytest.mark.parametrize("mode", ["none", "explicit"])
def test_one_name_in_two_repositories(tmp_path, start, mode):
    one, two = tmp_path / "one", tmp_path / "two"
    repo.add(one, "same")
    repo.add(two, "same")
    repo.add(one, "a")
    repo.add(two, "b")
    options = ["--exit-on-error=false"] + ["--load-model=*"] * (mode == "explicit")
    with Control(start([one, two], *options, mode=mode)) as c:
        assert c.answer("a")[0] == c.answer("b")[0] == [1, 2]
        rows = c.index("same")
        assert rows and all(r["state"] == "UNAVAILABLE" for r in rows)
        assert "model appears in two or more repositories" in rows[0]["reason"]
        if mode == "explicit":
            assert c.load("same").error.startswith("failed to load 'same', failed to poll from model repository: ")
        assert not c.ready()


def dynamic(text):
    return WHOLE + f"max_batch_size: 8 dynamic_batching {{ {text} }}"


IO = 'input {{ name: "X" data_type: TYPE_FP32 dims: {} }} output {{ name: "Y" data_type: TYPE_FP32 dims: 1 }} '
WHOLE = IO.format("[ 2 ]")
# Sentences of Triton's, which scripts look for in its log.
JUDGED = {
    "unexpected platform type 'caffe' for m": 'platform: "caffe"',
    "unexpected 'platform' and 'backend' pair, got:onnxruntim, onnxruntime": 'platform: "onnxruntim" backend: "onnxruntime"',
    "'max_batch_size' must be non-negative value for m": "max_batch_size: -1",
    "model input must specify 'name' for m": "input { dims: 1 }",
    "model input 'X' dimension must be integer >= 1, or -1 to indicate a variable-size dimension for m": IO.format(0),
    "model input 'X' has different size for dims and reshape for m": IO.format("2 reshape { shape: 3 }"),
    "model input 'X' has different number of variable-size dimensions for dims and reshape for m":
        IO.format("[ -1, 2 ] reshape { shape: [ -1, -1 ] }"),
    "model input 'X' reshape dimensions must be integer >= 1, or -1 to indicate a variable-size dimension for m":
        IO.format("2 reshape { shape: 0 }"),
    "model input NHWC/NCHW require 3 dims for m": IO.format("2 format: FORMAT_NHWC"),
    "dynamic batching preferred size must be positive for m": dynamic("preferred_batch_size: 0"),
    "dynamic batching preferred size must be <= max batch size for m": dynamic("preferred_batch_size: 9"),
    "default priority level must be in range [1, 3] for m": dynamic("priority_levels: 3"),
    "Only one priority level is allowed when 'preserve_ordering' is true for m":
        dynamic("preserve_ordering: true priority_levels: 2 default_priority_level: 1"),
    "instance group m_0 of model m has kind KIND_CPU but specifies one or more GPUs": "instance_group { kind: KIND_CPU gpus: 0 }",
    "instance group m_0 of model m has kind KIND_GPU but server does not support GPUs": "instance_group { kind: KIND_GPU }",
    "asks for iterative sequences": "sequence_batching { iterative_sequence: true }",
    "sequence batching minimum slot utilization must be in range (0.0, 1.0] for m":
        "sequence_batching { direct { minimum_slot_utilization: 1.5 } }",
    "'sequence_batching' cannot be given together with 'dynamic_batching'": "dynamic_batching { } sequence_batching { }",
}


@pytest.mark.parametrize("words, text", JUDGED.items(), ids=lambda v: v[:40])
def test_the_configuration_is_judged_first(models, explicit, words, text):
    """Before the version folders, of which there are none, the backend, and the model's file."""
    repo.add(models, "m", text if "platform" in text else f'{text} platform: "onnxruntime_onnx"', versions=())
    server, c = explicit()
    error = c.load("m").error
    assert error.startswith("failed to load 'm', failed to poll from model repository: ") and words in error, error
    (row,) = c.index("m")
    assert words in row["reason"] and words in "".join(e["msg"] for e in server.events() if e["event"] == "model.failed")


@pytest.mark.parametrize("words, text", [
    ("model input 'X' must specify 'data_type' for m", "input { name: 'X' dims: 1 }"),
    ("model input 'X' must specify 'dims' for m", "input { name: 'X' data_type: TYPE_FP32 }"),
    ("must specify at least one 'output'", "input { name: 'X' data_type: TYPE_FP32 dims: 1 }")])
@pytest.mark.parametrize("is_completed", [True, False])
def test_what_a_model_can_fill_in_may_be_missing(models, explicit, words, text, is_completed):
    repo.add(models, "m", f'{text} platform: "onnxruntime_onnx"', versions=())
    _, c = explicit(f"--disable-auto-complete-config={str(not is_completed).lower()}")
    error = c.load("m").error
    assert ("no version is available" if is_completed else words) in error, error


def test_a_model_without_version_has_none_available(models, explicit):
    repo.add(models, "m", versions=())
    _, c = explicit()
    assert c.load("m").error == "failed to load 'm', no version is available"
    reply = c.infer("m")
    assert (reply.status, reply.error) == (404, "Request for unknown model: 'm' has no available versions")


def test_two_repositories(tmp_path, start):
    one, two = tmp_path / "one", tmp_path / "two"
    repo.add(one, "a")
    repo.add(two, "b")
    with Control(start([one, two])) as c:
        assert [r["name"] for r in c.index()] == ["a", "b"]
        assert c.answer("a")[0] == c.answer("b")[0] == [1, 2]


def test_one_repository_twice(tmp_path, start):
    one = tmp_path / "one"
    repo.add(one, "a")
    (tmp_path / "link").symlink_to(one)
    with Control(start([one, one, f"{one}/", tmp_path / "link"], f"--model-store={one}")) as c:
        assert [(r["name"], r["state"]) for r in c.index()] == [("a", "READY")]
        assert c.answer("a")[0] == [1, 2]


# ---- fields without effect ----

NO_EFFECT = {
    "optimization.priority": "optimization { priority: PRIORITY_MAX }",
    "cc_model_filenames": 'cc_model_filenames { key: "7.0" value: "m.onnx" }',
    "instance_group.rate_limiter": 'instance_group { kind: KIND_CPU rate_limiter { priority: 2 } }',
    "optimization.cuda": "optimization { cuda { graphs: true } }",
}


@pytest.mark.parametrize("field", NO_EFFECT)
def test_fields_without_effect_are_warned_about_once(models, start, field):
    repo.add(models, "m", extra=NO_EFFECT[field])
    server = start(models)
    warnings = [e for e in server.events() if e["level"] == "warning" and f"'{field}" in e["msg"]]
    assert len(warnings) == 1 and warnings[0]["model"] == "m", server.describe()


# ---- what the operator reads ----


def newer(opset, ir_version):
    graph = helper.make_graph([helper.make_node("Add", ["INPUT0", "INPUT0"], ["OUTPUT0"])], "g",
                              [helper.make_tensor_value_info("INPUT0", TensorProto.INT32, ["length"])],
                              [helper.make_tensor_value_info("OUTPUT0", TensorProto.INT32, ["length"])])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=ir_version)


@pytest.mark.parametrize("opset, ir_version", [(17, 99), (99, 8), (99, 99)])
def test_a_model_that_is_too_new(models, explicit, opset, ir_version):
    """The figures of the model and of this build; a model converted as the message advises loads."""
    model = newer(opset, ir_version)
    repo.add(models, "m", "", files={"1/model.onnx": model.SerializeToString()})
    server, control = explicit()
    error = control.load("m").error
    assert f"the model has IR version {ir_version} and opset {opset}; " in error, error
    ir_most, opset_most = map(int, re.search(r"reads at most IR version (\d+) and opset (\d+)\.", error).groups())
    target, to_ir = map(int, re.search(r"convert_version\(onnx\.load\(FILE\), (\d+)\); m\.ir_version = (\d+); onnx\.save\(m, FILE\)", error).groups())
    assert to_ir == ir_most and target == min(opset, opset_most)
    repo.add(models, "m", "", files={"1/model.onnx": newer(target, to_ir).SerializeToString()})
    assert control.load("m").status == 200, "the most that is read is read"


def test_what_the_onnx_package_writes_by_default(models, explicit):
    """The advice works as written."""
    model = newer(onnx.defs.onnx_opset_version(), onnx.IR_VERSION)
    file = repo.add(models, "m", "", files={"1/model.onnx": model.SerializeToString()}) / "1" / "model.onnx"
    server, control = explicit()
    reply = control.load("m")
    if reply.status == 200:
        pytest.skip("this ONNX Runtime reads it")
    sentence = re.search(r"In Python: (.*?onnx\.save\(m, FILE\))", reply.error)[1]
    exec(sentence, {"onnx": onnx, "FILE": str(file)})
    assert control.load("m").status == 200


def test_reasons_are_without_cpp(models, explicit):
    """Neither when a model loads nor when it runs."""
    both = helper.make_graph([helper.make_node("Add", ["INPUT0", "INPUT1"], ["OUTPUT0"])], "g",
                             [helper.make_tensor_value_info(f"INPUT{i}", TensorProto.INT32, [f"n{i}"]) for i in range(2)],
                             [helper.make_tensor_value_info("OUTPUT0", TensorProto.INT32, ["n"])])
    runs = helper.make_model(both, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    repo.add(models, "runs", "max_batch_size: 0", files={"1/model.onnx": runs.SerializeToString()})
    repo.add(models, "new", "", files={"1/model.onnx": newer(17, 99).SerializeToString()})
    server, control = explicit()
    assert control.load("runs").status == 200
    reply = control.rest.infer("runs", [("INPUT0", "INT32", [2], [1, 2]), ("INPUT1", "INT32", [3], [1, 2, 3])])
    for text in (control.load("new").error, reply.error, server.err()):
        assert "::" not in text and ".cc:" not in text and ".h:" not in text, text
    assert "broadcast" in reply.error


@pytest.mark.parametrize("mode", ["none", "poll", "explicit"])
def test_last_line_of_a_failed_start(models, start, mode):
    repo.add(models, "good")
    repo.add(models, "wrong", config(backend="nosuchbackend"))
    options = ["--load-model=*"] if mode == "explicit" else []
    server = start(models, "--exit-on-error=true", *options, mode=mode, ready=False)
    server.checked = True
    assert server.wait_exit() == 1
    last = server.err().splitlines()[-1]
    assert "'wrong'" in last and "nosuchbackend" in last and "--exit-on-error=false" in last, last


def test_last_line_of_a_failed_start_with_a_long_reason(models, start):
    repo.add(models, "m" * 120, "", files={"1/model.onnx": newer(99, 99).SerializeToString()})
    server = start(models, "--exit-on-error=true", ready=False)
    server.checked = True
    assert server.wait_exit() == 1
    last = server.err().splitlines()[-1]
    assert "m" * 120 in last and "IR version 99 and opset 99" in last and "--exit-on-error=false" in last, last
