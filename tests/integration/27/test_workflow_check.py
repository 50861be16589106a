"""`millrace workflow check`, and Paddle Serving's files served as they are."""
import json
import os
import subprocess

import pytest

from lib import onnxgen, repo
from lib.models.graphs import adders
from lib.rest import Rest, infer_path

MILLRACE = os.environ["MR_BIN"]


def check(*args, code=0, env=None):
    done = subprocess.run([MILLRACE, "workflow", "check", *map(str, args)], capture_output=True, text=True, timeout=300, env=env)
    assert done.returncode == code, f"{done.returncode}: {done.stdout}{done.stderr}"
    return done


ENSEMBLE = """
name: "{name}"
platform: "ensemble"
input {{ name: "IN" data_type: TYPE_INT32 dims: -1 }}
output {{ name: "OUT" data_type: {dtype} dims: -1 }}
ensemble_scheduling {{
  step {{ model_name: "a" model_version: -1 input_map {{ key: "INPUT0" value: "IN" }} output_map {{ key: "OUTPUT0" value: "t" }} }}
  step {{ model_name: "b" model_version: -1 input_map {{ key: "INPUT0" value: "t" }} output_map {{ key: "OUTPUT0" value: "OUT" }} }}
}}
"""


@pytest.fixture
def models(tmp_path):
    folder = tmp_path / "models"
    for name in ("a", "b"):
        repo.add(folder, name)
    return folder


def put(models, name, text):
    (models / name / "1").mkdir(parents=True)
    (models / name / "config.pbtxt").write_text(text)
    return models / name


def test_proven(models):
    folder = put(models, "both", ENSEMBLE.format(name="both", dtype="TYPE_INT32"))
    for path in (folder, folder / "config.pbtxt", models):
        assert "2 nodes in 2 steps, all checks passed" in check(path).stdout


def test_a_file_alone(models, tmp_path):
    path = tmp_path / "x.pbtxt"
    path.write_text(ENSEMBLE.format(name="both", dtype="TYPE_INT32"))
    assert "all checks passed" in check(path, "--model-repository", models).stdout
    assert len(check(path, code=1).stderr.splitlines()) == 1


@pytest.mark.parametrize("name", ("../out", "a/b", ".."))
def test_a_name_that_is_a_path(models, tmp_path, name):
    """A file alone is checked in a folder of its own, which its name does not lead out of."""
    path = tmp_path / "x.pbtxt"
    path.write_text(ENSEMBLE.format(name=name, dtype="TYPE_INT32"))
    before = sorted(tmp_path.rglob("*"))
    done = check(path, "--model-repository", models, code=1, env={**os.environ, "TMPDIR": str(tmp_path)})
    assert f"x.pbtxt:1: invalid model name '{name}'" in done.stderr
    assert sorted(tmp_path.rglob("*")) == before


def test_refused(models):
    folder = put(models, "both", ENSEMBLE.format(name="both", dtype="TYPE_FP32"))
    done = check(folder, code=1)
    assert done.stderr.startswith(f"millrace workflow: {folder}/config.pbtxt:") and len(done.stderr.splitlines()) == 1
    assert "OUT" in done.stderr


@pytest.mark.parametrize("change, why", [
    (("TYPE_INT32 dims: -1 }\nworkflow", "TYPE_FP32 dims: -1 }\nworkflow"), "tensor OUT: inconsistent data type: TYPE_FP32 is inferred from model w"),
    (("dims: -1 }\nworkflow", "dims: [ -1, 3 ] }\nworkflow"), "tensor OUT: inconsistent shape"),
    (('"INPUT0" value: "t"', '"NOTHING" value: "t"'), "tensor t is mapping to non-existing input NOTHING in model b"),
    (('model { name: "b" }', 'model { name: "c" }'), "contains models that are not available or ambiguous: c"),
])
def test_the_node_and_its_line(models, change, why):
    """What does not fit the models is refused with the node, whose line it is."""
    text = """name: "w" platform: "workflow"
input { name: "IN" data_type: TYPE_INT32 dims: -1 } output { name: "OUT" data_type: TYPE_INT32 dims: -1 }
workflow_scheduling {
  node { name: "first" model { name: "a" } input_map { key: "INPUT0" value: "IN" } output_map { key: "OUTPUT0" value: "t" } }
  node { name: "second" model { name: "b" } input_map { key: "INPUT0" value: "t" } output_map { key: "OUTPUT0" value: "OUT" } }
}
"""
    assert text.count(change[0]) == 1
    folder = put(models, "w", text.replace(*change))
    line = check(folder, code=1).stderr
    assert line.startswith(f"millrace workflow: {folder}/config.pbtxt:5: node 'second': ") and why in line and line.count("\n") == 1


@pytest.mark.parametrize("fallback, why", [("none", "expected"), ("[1,2]", "'x' has 2 elements, which [1] does not"), ("7", None)])
def test_a_default_of_json_parse(tmp_path, fallback, why):
    """A default that no request could take is refused before there is one."""
    folder = put(tmp_path, "j", f"""name: "j" platform: "workflow"
input {{ name: "J" data_type: TYPE_STRING dims: 1 }} output {{ name: "OUT" data_type: TYPE_INT32 dims: 1 }}
workflow_scheduling {{
  node {{ name: "n" op: "json.parse" input_map {{ key: "json" value: "J" }} output_map {{ key: "x" value: "OUT" }}
    parameters {{ key: "x.dtype" value: "INT32" }} parameters {{ key: "x.default" value: "{fallback}" }} }}
}}
""")
    line = check(folder, code=1 if why else 0).stderr
    assert not why or ("parameter 'x.default': " in line and why in line and line.count("\n") == 1)


HEAD = """platform: "%s"
input { name: "IN" data_type: TYPE_INT32 dims: -1 } output { name: "OUT" data_type: TYPE_INT32 dims: -1 }
%s_scheduling {
"""
FIRST = 'node { name: "first" model { name: "a" } input_map { key: "INPUT0" value: "IN" } output_map { key: "OUTPUT0" value: "t" } %s }\n'
SECOND = FIRST.replace('"first"', '"second"').replace('"a"', '"b"').replace('"t"', '"OUT"').replace('"IN"', '"t"')
STEP = 'step { model_name: "%s" model_version: -1 input_map { key: "%s" value: "%s" } output_map { key: "%s" value: "%s" } }\n'
STEPS = STEP % ("a", "INPUT0", "IN", "OUTPUT0", "t"), STEP % ("b", "INPUT0", "t", "OUTPUT0", "OUT")


ZERO = 'default { tensor: "OUT" int64: 0 } '


@pytest.mark.few(12)
@pytest.mark.parametrize("kind, lines, at, why", [
    ("workflow", [FIRST % "", SECOND.replace("second", "first") % ""], 5, "workflow 'w': two nodes are named 'first'"),
    ("workflow", [FIRST % "", SECOND.replace('"second"', '""') % ""], 5, "workflow 'w': node 1 has no name"),
    ("workflow", [FIRST % "", SECOND.replace('"second"', "'second'") % 'after: "third"'], 5, "workflow 'w': node 'second' names 'third' in 'after'"),
    ("workflow", [FIRST.replace('"a"', '"second"') % "", SECOND % 'after: "third"'], 5, "workflow 'w': node 'second' names 'third' in 'after'"),
    ("workflow", [FIRST.replace("IN", "OUT") % "", SECOND % ""], 4, "workflow 'w': node 'first' waits for itself"),
    ("workflow", [FIRST % "", SECOND % "", FIRST.replace("first", "third") % ""], 6, "workflow 'w': tensor 't' is written by node 'third' and by "),
    ("workflow", [FIRST % "", SECOND.replace('"OUT"', '"u"') % ""], 2, "workflow 'w': nothing writes output 'OUT'"),
    ("workflow", [FIRST % "", SECOND % "\n", 'default { tensor: "u" int64: 1 }'], 7, "workflow 'w': a default of the workflow names 'u', which is no tensor"),
    ("workflow", [FIRST % "", SECOND % "", 'default { tensor: "OUT" string: "x" }'], 6, "workflow 'w': the default of the workflow for tensor 'OUT' is no INT32"),
    ("workflow", [FIRST % "", SECOND % 'default { tensor: "OUT" string: "x" }'], 5, "workflow 'w': the default of node 'second' for tensor 'OUT' is no INT32"),
    ("workflow", [FIRST % "", SECOND % "", "admission { max_queue: 1 }"], 6, "workflow 'w': admission must specify"),
    ("workflow", [FIRST % "", SECOND % "", 'gather { from: "t" into: "u" }\n', 'gather { from: "z" into: "v" }'], 7, "workflow 'w': node 'v' reads tensor 'z'"),
    ("workflow", [FIRST % "", SECOND % "", 'switch {\nname: "s" case { when: "sum(IN) > 1" node: "z" } }'], 7, "workflow 'w': node 's' names 'z' in 'switch'"),
    ("workflow", [FIRST % "", SECOND.replace('"b"', '"b" version: -5') % ""], 5, "workflow 'w': node 'second': model 'b' has version -5"),
    ("workflow", [FIRST % "", SECOND % "", 'default { tensor: "OUT" int64: 1 }\n', 'default { tensor: "OUT" int64: 2 }'], 7,
     "workflow 'w': a default of the workflow names 'OUT', and another"),
    ("workflow", [FIRST % "", SECOND.replace('"OUT"', '""') % ""], 5, "workflow 'w': node 'second': model 'w': a tensor's name has 1 to 1024 bytes, '' has not"),
    ("workflow", [FIRST % "", SECOND % "", 'gather { name: "g" from: "t" into: "' + "u" * 1025 + '" }'], 6, "workflow 'w': gather 'g': model 'w': a tensor's name has "),
    ("workflow", [FIRST % "", SECOND % "", 'switch { name: "s" per: ROW input: "t" input: "" case { when: "t > 1" node: "second" } }'], 6, "workflow 'w': switch 's': model 'w': "),
    ("ensemble", [STEPS[0], STEP % ("b", "INPUT0", "", "OUTPUT0", "OUT")], 5, "ensemble 'w', step 1: model 'w': a tensor's name has "),
    ("workflow", [FIRST % "", SECOND % "", 'default { tensor: "t" int64: 1 }'], 6, "workflow 'w': a default of the workflow names 't', which is no output"),
    ("workflow", [FIRST % "", SECOND % (ZERO + 'fallback { model { name: "a" } }')], 5,
     "workflow 'w': node 'second' has 'default', which its on_error, FALLBACK as it has 'fallback', does not use"),
    ("workflow", [FIRST % "", SECOND % (ZERO + "on_error: SKIP")], 5, "workflow 'w': node 'second' has 'default', which its on_error, SKIP, does not use"),
    ("workflow", [FIRST % "", SECOND % 'fallback { model { name: "a" } } on_error: FAIL'], 5,
     "workflow 'w': node 'second' has 'fallback', which its on_error, FAIL, does not use"),
    ("workflow", [FIRST % "", SECOND % "timeout_ms: 20 hedge { after_ms: 20 }"], 5,
     "workflow 'w': hedge of node 'second' has an 'after_ms' that is not before the node's time-out"),
    ("workflow", [FIRST % "", SECOND % "", "admission { max_inflight: 1 on_full: REJECT max_queue: 1 }"], 6, "workflow 'w': admission has 'max_queue', and with on_full: REJECT"),
    ("workflow", [FIRST % 'default { tensor: "t" int64: 1 } default { tensor: "t" int64: 2 }', SECOND % ""], 4, "workflow 'w': a default of node 'first' names 't', and another"),
    ("workflow", [FIRST % "", SECOND % "", 'gather { name: "first" from: "t" into: "u" }'], 6, "workflow 'w': gather 'first' has the name of a node"),
    ("ensemble", [STEPS[0], STEP % ("c", "INPUT0", "t", "OUTPUT0", "OUT")], 5, "ensemble w contains models that are not available or ambiguous: c"),
    ("ensemble", [STEPS[0], STEPS[1].replace("version: -1", "version: 7")], 5, "ensemble 'w' depends on 'b' whose required version 7 is not loaded."),
    ("ensemble", [STEPS[0], STEPS[1].replace("version: -1", "version: -5")], 5, "ensemble 'w' depends on 'b' whose required version -5 is not loaded."),
    ("ensemble", [STEPS[0], STEP % ("b", "Q", "t", "OUTPUT0", "OUT")], 5, "in ensemble w, ensemble tensor t is mapping to non-existing input Q in model b"),
    ("ensemble", [STEPS[0], STEPS[1], STEPS[1]], 6, "ensemble tensor 'OUT' can appear in an output map only once for ensemble 'w' step 2"),
    ("ensemble", [STEPS[0], STEP % ("", "INPUT0", "t", "OUTPUT0", "OUT")], 5, "must specify 'model_name' in step 1 of ensemble 'w'"),
    ("ensemble", [STEPS[0], STEP % ("b", "INPUT0", "t", "OUTPUT0", "u")], 2, "ensemble output 'OUT' for ensemble w' is not used"),
    ("ensemble", [], 1, "must specify 'step' for ensemble 'w'"),
])
def test_the_line_of_a_refusal(models, kind, lines, at, why):
    """That of the node, step, switch, gather, default or tensor that it names, with the server's own text."""
    folder = put(models, "w", HEAD % (kind, kind) + "".join(lines) + "}\n")
    line = check(folder, code=1).stderr
    assert line.startswith(f"millrace workflow: {folder}/config.pbtxt:{at}: {why}") and line.count("\n") == 1, line


@pytest.mark.parametrize("kind, lines, why", [
    ("ensemble", [STEPS[0], STEP % ("inner", "IN", "t", "OUT", "OUT")], "ensemble 'w' depends on 'inner' which has no loaded version. "),
    ("workflow", [FIRST % "", SECOND.replace('"b"', '"inner"').replace('"INPUT0"', '"IN"').replace('"OUTPUT0"', '"OUT"') % ""],
     "node 'second': workflow 'w' depends on 'inner' which has no loaded version. "),
])
def test_a_graph_whose_own_graph_is_wrong(models, kind, lines, why):
    """The line is that of the node or step, and what is wrong inside is said after it."""
    put(models, "inner", HEAD % ("workflow", "workflow") + FIRST % "" + SECOND % 'after: "z"' + "}")
    folder = put(models, "w", HEAD % (kind, kind) + "".join(lines) + "}")
    line = check(folder, code=1).stderr
    assert line.startswith(f"millrace workflow: {folder}/config.pbtxt:5: {why}"), line
    assert "workflow 'inner': node 'second' names 'z' in 'after'" in line, line


SPLIT_TIME = 'switch { name: "s" case { when: "sum(t) > 1" node: "second" } else { node: "third" } }'
THIRD = SECOND.replace("second", "third") % "timeout_ms: 50"


@pytest.mark.parametrize("lines, at, ms", [
    ([FIRST % "timeout_ms: 100", SECOND % "timeout_ms: 100"], (5, "second"), 200),
    ([FIRST % "timeout_ms: 100", SECOND % "timeout_ms: 50"], None, 0),
    ([FIRST % "timeout_ms: 100", SECOND % 'timeout_ms: 50 fallback { model { name: "a" } }'], (5, "second"), 200),
    ([FIRST % "timeout_ms: 100", SECOND % "timeout_ms: 60", THIRD, SPLIT_TIME], (7, "s"), 160),
    ([FIRST.replace('model { name: "a" }', 'op: "cast"').replace('"INPUT0"', '"x"').replace('"OUTPUT0"', '"x"') % 'parameters { key: "dtype" value: "INT32" }',
      SECOND % "", "defaults { timeout_ms: 100 }"], None, 0),
])
def test_time_outs_longer_than_the_deadline(models, lines, at, ms):
    """A warning with the line of the node that cannot have its time. Fallbacks and branches take time, operators have no time-out."""
    folder = put(models, "w", HEAD % ("workflow", "workflow") + "".join(lines) + "deadline_ms: 150 }\n")
    done = check(folder)
    assert "all checks passed" in done.stdout
    if not at:
        assert done.stderr == ""
        return
    start = f"millrace workflow: warning: {folder}/config.pbtxt:{at[0]}: node '{at[1]}': the time-outs up to its end, "
    assert done.stderr.startswith(start) and f" are {ms} ms " in done.stderr and done.stderr.count("\n") == 1


@pytest.mark.parametrize("is_first", (True, False))
def test_a_node_as_a_fallback(models, is_first):
    """It writes the same tensors as the node that it stands in for."""
    nodes = [FIRST % "", SECOND % 'fallback { node: "spare" }', SECOND.replace("second", "spare") % ""]
    folder = put(models, "w", HEAD % ("workflow", "workflow") + "".join(nodes[::-1] if is_first else nodes) + "}")
    assert "3 nodes in 3 steps, all checks passed" in check(folder).stdout
    drawn = subprocess.run([MILLRACE, "workflow", "draw", folder, "--format", "dot"], capture_output=True, text=True, timeout=300).stdout
    assert drawn.count('[label="on error"]') == 1 and drawn.count('[label="OUT"]') == 1


def test_a_text_in_a_condition_is_no_tensor(models):
    """It orders no nodes: what follows the node of the condition may have its name."""
    text = FIRST % """when: 'parameter("OUT") != "\\\\"OUT OUT"'""" + SECOND % "" + 'default { tensor: "OUT" int64: 0 }'
    assert "2 nodes in 2 steps, all checks passed" in check(put(models, "w", HEAD % ("workflow", "workflow") + text + "}")).stdout


def test_names_of_functions_and_nodes_are_no_tensors(models):
    """They order nothing, if tensors that are written later have them; what is in status() is a node, for which the condition waits."""
    third = FIRST.replace("first", "third").replace('"t"', '"rows"').replace('"IN"', '"t"')
    last = FIRST.replace("first", "last").replace('"t"', '"first"').replace('"IN"', '"OUT"')
    text = FIRST % "when: 'rows (IN) > 0'" + third % "" + SECOND % """when: 'status(first) == "ok"'""" + last % "" + 'default { tensor: "OUT" int64: 0 }'
    assert "4 nodes in 3 steps, all checks passed" in check(put(models, "w", HEAD % ("workflow", "workflow") + text + "}")).stdout


def test_gathers_need_no_name(models):
    two = 'gather { from: "t" into: "u" }\ngather { from: "t" into: "v" }\n'
    assert "4 nodes in 2 steps, all checks passed" in check(put(models, "w", HEAD % ("workflow", "workflow") + FIRST % "" + SECOND % "" + two + "}")).stdout


def test_a_server_that_is_not_there(tmp_path):
    """The line says why the model of another server is missing."""
    folder = put(tmp_path, "w", """platform: "workflow"
input { name: "X" data_type: TYPE_INT32 dims: -1 } output { name: "Y" data_type: TYPE_INT32 dims: -1 }
workflow_scheduling { node { name: "a" model { name: "m" remote: "grpc://127.0.0.1:1" }
  input_map { key: "X" value: "X" } output_map { key: "Y" value: "Y" } } }""")
    done = check(folder, code=1)
    assert "m@grpc:%2F%2F127.0.0.1:1" in done.stderr and "model 'm' of grpc://127.0.0.1:1: " in done.stderr and len(done.stderr.splitlines()) == 1


def test_no_graph(models):
    assert "holds no ensemble and no workflow" in check(models, code=1).stderr
    assert "the configuration has neither" in check(models / "a", code=1).stderr


@pytest.mark.few
@pytest.mark.parametrize("copies", [0, 1, 2])
def test_a_service_of_paddle(tmp_path, start, copies):
    """infer_service.prototxt and its files, two engines in a workflow of Paddle Serving; the second one on other servers, if there are any."""
    far = tmp_path / "far"
    adders(far, second=10)
    ports = [start(far).grpc for _ in range(copies)]
    second = "".join(f'address: "127.0.0.1:{port}" ' for port in ports) + f'type: "General{"Remote" if ports else "Infer"}Op"'
    conf = tmp_path / "conf"
    conf.mkdir()
    for name, number in (("first", 1), ("second", 10))[: 1 if ports else 2]:
        (tmp_path / name).mkdir()
        (tmp_path / name / "model.onnx").write_bytes(onnxgen.adder(number))
    texts = {
        "infer_service": 'port: 8010 services { name: "Sum" workflows: "w" }',
        "workflow": '''workflows { name: "w" workflow_type: "Sequence"
            nodes { name: "read" type: "GeneralReaderOp" }
            nodes { name: "first" type: "GeneralInferOp" dependencies { name: "read" mode: "RO" } }
            nodes { name: "second" %s dependencies { name: "first" mode: "RO" } }
            nodes { name: "answer" type: "GeneralResponseOp" dependencies { name: "second" mode: "RO" } } }''' % second,
        "resource": '''model_toolkit_path: "./conf/" model_toolkit_file: "model_toolkit.prototxt"
            general_model_path: "./conf/" general_model_file: "general.prototxt"
            general_model_path: "./conf/" general_model_file: "general.prototxt"''',
        "model_toolkit": '''engines { name: "first" type: "PADDLE_INFER" model_dir: "./first" }
            engines { name: "second" type: "PADDLE_INFER" model_dir: "./second" }''',
        "general": '''feed_var { name: "INPUT0" alias_name: "x" feed_type: 2 }
            fetch_var { name: "OUTPUT0" alias_name: "y" fetch_type: 2 }''',
    }
    for name, text in texts.items():
        (conf / f"{name}.prototxt").write_text(text)
    empty = tmp_path / "models"
    empty.mkdir()
    server = start(empty, "--paddle-service", str(conf / "infer_service.prototxt"), "--archive-cache", str(tmp_path / "cache"))
    with Rest(server.http) as rest:
        body = {"inputs": [{"name": "x", "datatype": "INT32", "shape": [3], "data": [1, 2, 3]}]}
        output = rest.post(infer_path("Sum"), json.dumps(body)).ok().json()["outputs"][0]
    assert output["data"] == [12, 13, 14]


PIPELINE = """
{"pipeline_config_list": [{"name": "crops", "inputs": ["image", "other"], "nodes": [
   {"name": "det", "model_name": "det", "type": "DL model", "demultiply_count": 0,
    "inputs": [{"CROPS": {"node_name": "request", "data_item": "image"}}, {"SIZES": {"node_name": "request", "data_item": "other"}}],
    "outputs": [{"data_item": "CROPS", "alias": "crops"}, {"data_item": "SIZES", "alias": "sizes"}]},
   {"name": "rec", "model_name": "rec", "type": "DL model",
    "inputs": [{"X": {"node_name": "det", "data_item": "crops"}}, {"S": {"node_name": "det", "data_item": "sizes"}}],
    "outputs": [{"data_item": "X", "alias": "x"}, {"data_item": "S", "alias": "s"}]},
   {"name": "all", "model_name": "all", "type": "DL model", "gather_from_node": "det",
    "inputs": [{"INPUT0": {"node_name": "rec", "data_item": "x"}}], "outputs": [{"data_item": "OUTPUT0", "alias": "w"}]}],
  "outputs": [{"label": {"node_name": "all", "data_item": "w"}}, {"sizes": {"node_name": "rec", "data_item": "s"}}]}]}
"""


def test_rows_of_another_server(tmp_path, start):
    """What splits rows there runs for each row here: imported, checked, drawn and served."""
    models, pairs = tmp_path / "models", [repo.tensor("X", dims=(2,)), repo.tensor("S", dims=(2,))]
    found = [repo.tensor("CROPS", dims=(-1, 2)), repo.tensor("SIZES", dims=(-1, 2))]
    repo.add(models, "det", inputs=found, outputs=found)
    repo.add(models, "rec", max_batch_size=3, inputs=pairs, outputs=pairs)
    both = [repo.tensor("INPUT0", dims=(-1, 2))], [repo.tensor("OUTPUT0", dims=(-1, 2))]
    repo.add(models, "all", inputs=both[0], outputs=both[1])
    path = tmp_path / "config.json"
    path.write_text(PIPELINE)
    done = subprocess.run([MILLRACE, "workflow", "import", path, "--model-repository", models, "-o", models], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert (models / "crops" / "config.pbtxt").read_text().count("over:") == 2
    assert "all checks passed" in check(models / "crops").stdout
    drawn = subprocess.run([MILLRACE, "workflow", "draw", models / "crops"], capture_output=True, text=True, timeout=300)
    assert "for each row of det_crops" in drawn.stdout
    with Rest(start(models).http) as rest:
        for rows in (0, 1, 8):
            data = {"image": list(range(2 * rows)), "other": list(range(100, 100 + 2 * rows))}
            inputs = [{"name": name, "datatype": "INT32", "shape": [rows, 2], "data": d} for name, d in data.items()]
            reply = rest.post(infer_path("crops"), {"inputs": inputs})
            assert reply.status == 200, reply.body
            assert {o["name"]: o["data"] for o in reply.json()["outputs"]} == {"label": data["image"], "sizes": data["other"]}


def test_rows_are_checked(models):
    text = ENSEMBLE.format(name="rows", dtype="TYPE_INT32").split("ensemble_scheduling")[0].replace('"ensemble"', '"workflow"')
    flow = """workflow_scheduling {
  node { name: "small" model { name: "a" } input_map { key: "INPUT0" value: "IN" } output_map { key: "OUTPUT0" value: "t" } }
  node { name: "large" model { name: "b" } input_map { key: "INPUT0" value: "IN" } output_map { key: "OUTPUT0" value: "t" } }
  switch { name: "size" per: ROW input: "IN" case { when: "IN > 5" node: "large" } %s merge { into: "t" } }
  node { name: "each" model { name: "a" } input_map { key: "INPUT0" value: "t" } output_map { key: "OUTPUT0" value: "u" }
         foreach { over: "%s" } }
  gather { name: "last" from: "u" into: "OUT" }
}"""
    folder = put(models, "rows", text + flow % ('else { node: "small" }', "t"))
    assert "all checks passed" in check(folder).stdout
    for parts, line, words in (('case { when: "IN < 3" node: "small" }', "t"), 9, "rows of tensor 't' may have no value"), (('else { node: "small" }', "IN"), 10, "which it does not read"):
        (folder / "config.pbtxt").write_text(text + flow % parts)
        done = check(folder, code=1)
        assert words in done.stderr and f"config.pbtxt:{line}: " in done.stderr, done.stderr
