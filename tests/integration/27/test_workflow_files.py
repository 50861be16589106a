"""`millrace workflow import` and `draw`: graphs of other servers become configurations, what has no counterpart is refused."""
import json
import os
import re
import subprocess
import xml.etree.ElementTree as ElementTree

import pytest

from lib import onnxgen, repo

MILLRACE = os.environ["MR_BIN"]


def workflow(*args, code=0):
    done = subprocess.run([MILLRACE, "workflow", *map(str, args)], capture_output=True, text=True, timeout=300)
    assert done.returncode == code, f"{done.returncode}: {done.stdout}{done.stderr}"
    return done


def imported(tmp_path, text, *args, name="graph.yaml", code=0):
    path = tmp_path / name
    path.write_text(text)
    return workflow("import", path, *args, code=code)


def model(repository, name, inputs, outputs, batch=0):
    """A configuration that says which tensors a model has."""
    folder = repository / name
    folder.mkdir(parents=True)
    lines = [f'name: "{name}"', f"max_batch_size: {batch}"]
    for kind, tensors in (("input", inputs), ("output", outputs)):
        for tensor, dtype, dims in tensors:
            lines.append(f'{kind} {{ name: "{tensor}" data_type: {dtype} dims: {list(dims)} }}')
    (folder / "config.pbtxt").write_text("\n".join(lines))


def flat(text):
    return re.sub(r"\s+", " ", text)


GRAPH = """
apiVersion: serving.kserve.io/v1alpha1
kind: InferenceGraph
metadata: {name: g}
spec:
  nodes:
    root:
"""

PIPELINE = "kind: Pipeline\nmetadata: {name: p}\nspec:\n  steps: [%s]\n  output: {steps: [%s]}\n"


def test_sequence(tmp_path):
    models = tmp_path / "models"
    model(models, "a", [("image", "TYPE_UINT8", (-1, 3))], [("x", "TYPE_FP32", (10,))], batch=8)
    model(models, "b", [("features", "TYPE_FP32", (10,))], [("label", "TYPE_STRING", (1,))], batch=4)
    done = imported(tmp_path, GRAPH + """
      routerType: Sequence
      steps:
      - {serviceName: a, name: one}
      - {serviceName: b, name: two, data: $response, dependency: Hard}
""", "--model-repository", models)
    text = flat(done.stdout)
    assert done.stderr == ""
    assert 'name: "g" platform: "workflow" max_batch_size: 4' in text
    assert 'input { name: "image" data_type: TYPE_UINT8 dims: -1 dims: 3 }' in text
    assert 'output { name: "label" data_type: TYPE_STRING dims: 1 }' in text
    assert 'node { name: "two" model { name: "b" } input_map { key: "features" value: "x" }' in text


def test_answers_keep_their_names(tmp_path):
    """Clients ask for outputs by the names that the models give them: the tensors in between give way."""
    models = tmp_path / "models"
    for name in "abc":
        repo.add(models, name, onnxgen.ADDER_CONFIG, files={"1/model.onnx": onnxgen.adder(1)})
    graph = GRAPH + "      routerType: Sequence\n      steps: [{serviceName: a}, {serviceName: b, data: $response}, {serviceName: c, data: $response}]\n"
    pipeline = PIPELINE % ("{name: a}, {name: b, inputs: [a]}, {name: c, inputs: [b]}", "c, b")
    for name, text, outputs in (("g", graph, ["OUTPUT0"]), ("p", pipeline, ["OUTPUT0", "b_OUTPUT0"])):
        imported(tmp_path, text, "-o", models, "--model-repository", models)
        workflow("check", models / name)
        config = flat((models / name / "config.pbtxt").read_text())
        assert re.findall(r'output { name: "(\w+)"', config) == outputs
        assert 'output_map { key: "OUTPUT0" value: "a_OUTPUT0" }' in config
    service = paddle(tmp_path, general_model=ALIASED % ("x0", "image", "y0", "out"), second=ALIASED % ("x1", "out", "y1", "out"))
    text = flat(workflow("import", service).stdout)
    assert 'output_map { key: "y0" value: "first_out" }' in text and 'output_map { key: "y1" value: "out" }' in text
    assert text.count('output { name: "out" data_type') == 2  # of the workflow and of the service


def test_switch_splitter_ensemble(tmp_path):
    done = imported(tmp_path, GRAPH + """
      routerType: Switch
      steps:
      - {nodeName: half, condition: 'parameters.fast'}
      - {nodeName: both, condition: '[@this].#(source=="client")'}
      - {nodeName: half, name: rest}
    half:
      routerType: Splitter
      steps:
      - {serviceName: a, weight: 20, data: $request}
      - {serviceName: b, weight: 80, dependency: Hard}
    both:
      routerType: Splitter
      steps: [{serviceName: c, weight: 100}]
""")
    text = flat(done.stdout)
    assert 'case { when: "present(parameter(\\"fast\\"))" node: "half" }' in text
    assert 'case { when: "parameter(\\"source\\") == \\"client\\"" node: "both" }' in text
    assert 'else { node: "rest" }' in text
    assert 'variant { name: "b" model { name: "b" } weight: 80 }' in text
    assert [line.split()[2] for line in done.stdout.splitlines() if line.startswith("# ----")] == [
        "g-half/config.pbtxt", "g-both/config.pbtxt", "g/config.pbtxt"]
    done = imported(tmp_path, GRAPH + """
      routerType: Ensemble
      steps: [{serviceName: a}, {serviceName: b, dependency: Soft}]
""")
    text = flat(done.stdout)
    assert 'output { name: "a_OUTPUT"' in text and 'output { name: "b_OUTPUT"' in text
    assert text.count("on_error: SKIP") == 1


def test_a_number_as_parameter(tmp_path):
    models = tmp_path / "models"
    for name in "ab":
        repo.add(models, name, onnxgen.ADDER_CONFIG, files={"1/model.onnx": onnxgen.adder(1)})
    imported(tmp_path, GRAPH + """
      routerType: Switch
      steps: [{serviceName: a, condition: '[@this].#(count>=10)'}, {serviceName: b}]
""", "-o", models, "--model-repository", models)
    workflow("check", models / "g")
    text = flat((models / "g" / "config.pbtxt").read_text())
    assert r'case { when: "present(parameter(\"count\")) and parameter(\"count\", 0.0) >= 10" node: "a" }' in text


@pytest.mark.parametrize("steps, why", [
    ("routerType: Sequence\n      steps: [{serviceName: a, condition: x}]", r":9: step 'a': the condition of a step has no counterpart in a node of type Sequence"),
    ("routerType: Splitter\n      steps: [{serviceName: a, weight: 100, condition: x}]", r":9: step 'a': the condition of a step .* type Splitter"),
    ("routerType: Ensemble\n      steps: [{serviceName: a, data: $response}]", r":9: step 'a': the data of a step .* type Ensemble"),
    ("routerType: Switch\n      steps: [{serviceName: a, data: $request, weight: 3}]", r":9: step 'a': the weight of a step .* type Switch"),
    ("routerType: Splitter\n      steps: [{serviceName: a, weight: 40}, {serviceName: b, weight: 60, dependency: Bogus}]",
     r":9: step 'b': dependency is 'Bogus'"),
    ("routerType: Splitter\n      steps: [{serviceName: a, weight: 40}, {serviceName: b, weight: 60, dependency: Soft}]",
     r":9: step 'b': its dependency differs from that of step 'a'"),
    ("routerType: Loop\n      steps: [{serviceName: a}]", r":8: node 'root': routerType is 'Loop'"),
    ("routerType: Sequence\n      steps: [{nodeName: root}]", r"node 'root': it leads back to itself"),
    ("routerType: Sequence\n      steps: [{nodeName: nobody}]", r":9: step 'nobody': there is no node 'nobody'"),
    ("routerType: Splitter\n      steps: [{serviceName: a, weight: 40}]", r"sum up to 40"),
    ("routerType: Switch\n      steps: [{serviceName: a, condition: 'a.#(b.c>1)#'}]", r":9: step 'a': the condition .* looks into JSON"),
    ("routerType: Sequence\n      steps: [{serviceName: a, tolerance: 1}]", r":9: node 'root': 'tolerance' has no counterpart"),
    ("routerType: Sequence\n      steps: [{serviceUrl: 'http://x/v1/models/m:predict'}]", r"serviceUrl"),
    ("routerType: Sequence\n      steps: [{serviceName: ../a}]", r"'\.\./a' is no name of a model"),
    ("routerType: Sequence\n      steps: []", r"it has no steps"),
])
def test_refusals_of_kserve(tmp_path, steps, why):
    done = imported(tmp_path, GRAPH + "      " + steps + "\n", code=1)
    assert re.search(r"graph\.yaml" + (why if why.startswith(":") else ".*" + why), done.stderr), done.stderr
    assert len(done.stderr.splitlines()) == 1 and done.stdout == ""


def test_seldon_pipeline(tmp_path):
    done = imported(tmp_path, """
kind: Pipeline
metadata: {name: join}
spec:
  steps:
    - name: s1
    - name: s2
      triggers: [s1.outputs.OUTPUT0]
    - name: s3
      inputs: [s1.outputs.OUTPUT0, s2.outputs.OUTPUT1]
      tensorMap: {s1.outputs.OUTPUT0: INPUT0, s2.outputs.OUTPUT1: INPUT1}
  output: {steps: [s3]}
""")
    text = flat(done.stdout)
    assert ('node { name: "s3" model { name: "s3" } input_map { key: "INPUT0" value: "OUTPUT0" } '
            'input_map { key: "INPUT1" value: "OUTPUT1" }') in text
    assert 'when: "present(`OUTPUT0`)" after: "s1"' in text


def test_outputs_that_references_name(tmp_path):
    """Also if one has the name that stands for outputs that are not known."""
    out = flat(imported(tmp_path, PIPELINE % ("{name: m}", "m.outputs.OUTPUT, m.outputs.SCORE")).stdout)
    assert 'output_map { key: "OUTPUT" value: "OUTPUT" } output_map { key: "SCORE" value: "SCORE" }' in out


@pytest.mark.parametrize("has_models", (False, True))
@pytest.mark.parametrize("inputs", ("p, a", "p.inputs.X, a.outputs.Z"))
def test_seldon_tensor_map(tmp_path, has_models, inputs):
    """Entries hold for the tensors of whole steps and of the whole request as well, whether the models are known or not."""
    models = tmp_path / "models"
    if has_models:
        model(models, "a", [("IN", "TYPE_FP32", (-1,))], [("Z", "TYPE_FP32", (-1,))])
        model(models, "b", [("ONE", "TYPE_FP32", (-1,)), ("TWO", "TYPE_FP32", (-1,))], [("OUT", "TYPE_FP32", (-1,))])
    if has_models and inputs == "p, a": # the request offers what the model takes
        inputs = "p.inputs.X, a"
    text = PIPELINE % (f"{{name: a, inputs: [p], tensorMap: {{p.inputs.S: IN}}}}, {{name: b, inputs: [{inputs}], "
                       "tensorMap: {a.outputs.Z: TWO, p.inputs.X: ONE}}", "b")
    out = flat(imported(tmp_path, text, *(("--model-repository", models) if has_models else ())).stdout)
    assert 'node { name: "a" model { name: "a" } input_map { key: "IN" value: "S" } output_map { key: "Z" value: "Z" } }' in out
    assert 'input_map { key: "ONE" value: "X" } input_map { key: "TWO" value: "Z" }' in out


@pytest.mark.parametrize("entry, why", [
    ("a.outputs.Q: IN", "step 'b': tensorMap: 'a.outputs.Q' is no tensor that the step gets"),
    ("a.inputs.X: IN", "step 'b': tensorMap: 'a.inputs.X' is no tensor that the step gets"),
    ("a: IN", "step 'b': tensorMap: 'a' is no tensor that the step gets"),
    ("a.x.X: IN", "step 'b': 'a.x.X' is no NAME.inputs or NAME.outputs"),
])
def test_seldon_tensor_map_refused(tmp_path, entry, why):
    text = PIPELINE.replace("  steps:", "\n  steps:") % ("{name: a}, {name: b, inputs: [a.outputs.X], tensorMap: {%s}}" % entry, "b")
    assert f"graph.yaml:5: {why}" in imported(tmp_path, text, code=1).stderr


@pytest.mark.parametrize("trigger, why", [
    ("a.outputs.ZZ", "step 'a' has no output 'ZZ'"),
    ("a.inputs.IN", "the inputs of another step have no counterpart here"),
])
def test_triggers_of_no_tensor(tmp_path, trigger, why):
    """A condition on what is never there is not dropped."""
    models = tmp_path / "models"
    model(models, "a", [("IN", "TYPE_FP32", (-1,))], [("Z", "TYPE_FP32", (-1,))])
    done = imported(tmp_path, PIPELINE % ("{name: a}, {name: b, triggers: [%s]}" % trigger, "b"), "--model-repository", models, code=1)
    assert f"graph.yaml:4: step 'b': {why}" in done.stderr


def test_seldon_experiment(tmp_path):
    done = imported(tmp_path, """
kind: Experiment
metadata: {name: ab}
spec:
  default: iris
  candidates: [{name: iris, weight: 90}, {name: iris2, weight: 10}]
  mirror: {name: iris3, percent: 5}
""")
    text = flat(done.stdout)
    assert 'variant { name: "iris" model { name: "iris" } weight: 90 }' in text
    assert 'shadow { name: "iris3" model { name: "iris3" } percent: 5 }' in text


def experiment(*candidates, mirror=""):
    return ("kind: Experiment\nmetadata: {name: ab}\nspec:\n  candidates:\n" +
            "".join(f"  - {{name: {name}, weight: {weight}}}\n" for name, weight in candidates) + mirror)


SELF_OVMS = """{"pipeline_config_list": [{"name": "p", "inputs": ["x"], "nodes": [
   {"name": "n", "model_name": "p", "type": "DL model", "inputs": [{"x": {"node_name": "request", "data_item": "x"}}],
    "outputs": [{"data_item": "y", "alias": "y"}]}], "outputs": [{"z": {"node_name": "n", "data_item": "y"}}]}]}"""


@pytest.mark.parametrize("text, why", [
    (experiment(("a", 1), ("b c", 1)), ":6: workflow 'ab': split of node 'split': variant 2: tag 'b c': possible are"),
    (experiment(("a", 1), ("b", 1), ("a", 1)), ":7: .*variants 1 and 3 have the same name 'a'"),
    (experiment(("a", 0), ("b", 0)), ":4: .*node 'split': all weights are 0"),
    (experiment(*((f"m{i}", 1) for i in range(40))), ":4: .*node 'split': 40 variants, possible are 1 to 32"),
    (experiment(("a", 1), ("ab", 1)), ":6: node 'split': its model has the name of the workflow, 'ab'"),
    (experiment(("a", 1), mirror="  mirror: {name: ab}\n"), ":4: node 'split': its model has the name"),
    (SELF_OVMS, ":2: node 'n': its model has the name of the workflow, 'p'"),
    (SELF_OVMS.replace('"model_name": "p"', '"model_name": "m"').replace('"z": {', '"x": {'),
     ":2: workflow 'p': tensor 'x' is written by node 'n' and by the client"),
    (SELF_OVMS.replace('"model_name": "p"', '"model_name": "m"').replace('[{"z"', '[{"w": {"node_name": "n", "data_item": "y"}}, {"z"'),
     ":1: workflow 'p': nothing writes output 'z'"),
    (GRAPH + "      routerType: Splitter\n      steps:\n      - {serviceName: a, name: 'x y', weight: 100}\n",
     ":10: workflow 'g': split of node 'split': variant 1: tag 'x y'"),
])
def test_what_the_server_would_not_load(tmp_path, text, why):
    done = imported(tmp_path, text, "--from", "ovms" if text[0] == "{" else "auto", code=1)
    assert re.search(r"graph\.yaml" + why, done.stderr), done.stderr
    assert len(done.stderr.splitlines()) == 1 and done.stdout == ""


def test_steps_that_may_be_left_out_are_loaded(tmp_path):
    """A workflow is loaded only if its outputs have a value in any case."""
    models = tmp_path / "models"
    for name in ("a", "b"):
        repo.add(models, name, onnxgen.ADDER_CONFIG, files={"1/model.onnx": onnxgen.adder(1)})
    graph = GRAPH + "      routerType: Ensemble\n      steps: [{serviceName: a}, {serviceName: b, dependency: Soft}]\n"
    trigger = PIPELINE % ("{name: a}, {name: b, triggers: [a.outputs.OUTPUT0]}", "b")
    for i, text in enumerate((graph, trigger)):
        done = imported(tmp_path, text, "-o", tmp_path / f"o{i}", "--model-repository", models)
        assert "some of its nodes may be left out" in done.stderr
        workflow("check", tmp_path / f"o{i}", "--model-repository", models)


def test_settings_of_a_graph(tmp_path):
    graph = GRAPH.replace("spec:\n", "spec:\n  timeout: 60\n  minReplicas: 1\n  resources: {limits: {cpu: 1}}\n") + """
      routerType: Sequence
      steps: [{nodeName: next}]
    next:
      routerType: Sequence
      steps: [{serviceName: a}]
"""
    done = imported(tmp_path, graph)
    assert done.stdout.count("deadline_ms: 60000") == 1
    assert done.stdout.index("deadline_ms") > done.stdout.index("g/config.pbtxt")
    for line, name in ((7, "minReplicas"), (8, "resources")):
        assert f"graph.yaml:{line}: '{name}' is of the deployment, and without effect here" in done.stderr
    assert "graph.yaml:6: 'timeout' is '0', allowed are 1 to 4294967" in imported(tmp_path, graph.replace("60", "0"), code=1).stderr
    other = graph.replace("minReplicas: 1", "routerTimeouts: {serverRead: 1}")
    assert "graph.yaml:7: 'routerTimeouts' has no counterpart here" in imported(tmp_path, other, code=1).stderr


@pytest.mark.parametrize("spec, why", [
    ("steps: [{name: a, inputsJoinType: any}]\n  output: {steps: [a]}", "the join 'any' has no counterpart"),
    ("steps: [{name: a, inputs: [b]}, {name: b, inputs: [a]}]\n  output: {steps: [a]}", "it depends on itself"),
    ("steps: [{name: a, batch: {size: 3}}]\n  output: {steps: [a]}", "'batch' has no counterpart"),
    ("steps: [{name: a, inputs: [nobody.outputs.X]}]\n  output: {steps: [a]}", "there is no step 'nobody'"),
    ("steps: [{name: a}]\n  output: {steps: [z]}", "there is no step 'z'"),
])
def test_refusals_of_seldon(tmp_path, spec, why):
    done = imported(tmp_path, "kind: Pipeline\nmetadata: {name: p}\nspec:\n  " + spec + "\n", code=1)
    assert re.search(r"graph\.yaml:\d+: ", done.stderr) and why in done.stderr


def test_ovms(tmp_path):
    done = imported(tmp_path, """
{"model_config_list": [{"config": {"name": "face", "base_path": "/m"}}],
 "pipeline_config_list": [{"name": "p", "inputs": ["image"], "nodes": [
   {"name": "det", "model_name": "face", "type": "DL model", "version": 2, "demultiply_count": 16,
    "inputs": [{"img": {"node_name": "request", "data_item": "image"}}],
    "outputs": [{"data_item": "boxes", "alias": "crops"}]},
   {"name": "rec", "model_name": "rec", "type": "DL model",
    "inputs": [{"x": {"node_name": "det", "data_item": "crops"}}], "outputs": [{"data_item": "y", "alias": "y"}]},
   {"name": "all", "model_name": "all", "type": "DL model", "gather_from_node": "det",
    "inputs": [{"z": {"node_name": "rec", "data_item": "y"}}], "outputs": [{"data_item": "w", "alias": "w"}]}],
  "outputs": [{"label": {"node_name": "all", "data_item": "w"}}]}]}
""", name="config.json")
    text = flat(done.stdout)
    assert 'node { name: "det" model { name: "face" version: 2 }' in text
    assert 'foreach { over: "det_crops" max: 16 }' in text and text.count("foreach") == 1
    assert 'output_map { key: "w" value: "label" }' in text


def one_of_ovms(name, before, item, **more):
    return {"name": name, "model_name": name, "type": "DL model", "inputs": [{"in": {"node_name": before, "data_item": item}}],
            "outputs": [{"data_item": "out", "alias": "out"}], **more}


@pytest.mark.parametrize("gathers", (False, True))
@pytest.mark.parametrize("crops, x, y, labels", [
    ((-1, 1, 2), (1, 2), (1, 1), "-1 1 1"),  # a row without its dimension, whose own first dimension is 1
    ((-1, 2), (2,), (1,), "-1 1"),
    ((-1, 2), (1, 2), (1, 1), "-1 1"),  # a row with its dimension
    ((-1, 1, 2), (-1, 2), (-1, 1), "-1 -1 1"),
])
def test_rows_of_ovms_are_loaded(tmp_path, crops, x, y, labels, gathers):
    """The rows that come together have the dimensions that the models' say, whether a node takes them or the client."""
    models = tmp_path / "models"
    gathered = [int(n) for n in labels.split()]
    for name, ins, outs in (("det", (-1,), crops), ("rec", x, y), ("all", gathered, gathered)):
        repo.add(models, name, repo.config(inputs=[repo.tensor("in", "TYPE_FP32", ins)], outputs=[repo.tensor("out", "TYPE_FP32", outs)]))
    names = ["det", "rec", "all"][:2 + gathers]
    nodes = [one_of_ovms(name, before, "image" if before == "request" else "out") for before, name in zip(["request", *names], names)]
    nodes[0]["demultiply_count"] = -1
    if gathers:
        nodes[2]["gather_from_node"] = "det"
    pipeline = {"name": "p", "inputs": ["image"], "nodes": nodes, "outputs": [{"label": {"node_name": names[-1], "data_item": "out"}}]}
    imported(tmp_path, json.dumps({"pipeline_config_list": [pipeline]}), "-o", models, "--model-repository", models, name="config.json")
    assert f'output {{ name: "label" data_type: TYPE_FP32 dims: {labels.replace(" ", " dims: ")} }}' in flat((models / "p" / "config.pbtxt").read_text())
    workflow("check", models / "p")


@pytest.mark.parametrize("batch, x, y, image, label", [
    (0, (1, 2), (1, 1), "-1 1 2", "-1 1 1"),
    (8, (2,), (1,), "-1 2", "-1 1"),
])
def test_rows_of_a_request_of_ovms(tmp_path, batch, x, y, image, label):
    """demultiply_count of a pipeline: its nodes run for each row of its inputs, until one gathers."""
    models = tmp_path / "models"
    dims = [int(n) for n in label.split()]
    for name, ins, outs, rows in (("rec", x, y, batch), ("all", dims, dims, 0)):
        repo.add(models, name, repo.config(max_batch_size=rows, inputs=[repo.tensor("in", "TYPE_FP32", ins)],
                                           outputs=[repo.tensor("out", "TYPE_FP32", outs)]))
    pipeline = {"name": "p", "inputs": ["image"], "demultiply_count": 0, "nodes": [
        one_of_ovms("rec", "request", "image"), one_of_ovms("all", "rec", "out", gather_from_node="request")],
        "outputs": [{"each": {"node_name": "rec", "data_item": "out"}}, {"label": {"node_name": "all", "data_item": "out"}}]}
    imported(tmp_path, json.dumps({"pipeline_config_list": [pipeline]}), "-o", models, "--model-repository", models, name="config.json")
    text = flat((models / "p" / "config.pbtxt").read_text())
    for tensor, dims in (("image", image), ("each", label), ("label", label)):
        assert f'name: "{tensor}" data_type: TYPE_FP32 dims: {dims.replace(" ", " dims: ")} }}' in text
    assert text.count("foreach") == 1 and 'foreach { over: "image" }' in text
    workflow("check", models / "p")


def test_refusals_of_ovms(tmp_path):
    done = imported(tmp_path, """{"pipeline_config_list": [{"name": "p", "inputs": [], "nodes": [
   {"name": "c", "type": "custom", "library_name": "x", "inputs": [], "outputs": []}], "outputs": []}]}""",
                    name="config.json", code=1)
    assert "config.json:2: node 'c': nodes of type 'custom' have no counterpart here" in done.stderr


PADDLE = {
    "infer_service": 'port: 8010 services { name: "Digits" workflows: "w" }',
    "workflow": '''workflows { name: "w" workflow_type: "Sequence"
        nodes { name: "read" type: "GeneralReaderOp" }
        nodes { name: "first" type: "GeneralInferOp" dependencies { name: "read" mode: "RO" } }
        nodes { name: "second" type: "GeneralInferOp" dependencies { name: "first" mode: "RO" } }
        nodes { name: "answer" type: "GeneralResponseOp" dependencies { name: "second" mode: "RO" } } }''',
    "resource": '''model_toolkit_path: "./conf/" model_toolkit_file: "model_toolkit.prototxt"
        general_model_path: "./conf/" general_model_file: "general_model.prototxt"
        general_model_path: "./conf/" general_model_file: "second.prototxt"''',
    "model_toolkit": '''engines { name: "first" type: "PADDLE_INFER" model_dir: "./first" gpu_ids: -1 }
        engines { name: "second" type: "PADDLE_INFER" model_dir: "./second" }''',
    "general_model": '''feed_var { name: "x0" alias_name: "image" feed_type: 1 shape: 784 }
        fetch_var { name: "y0" alias_name: "features" fetch_type: 1 shape: 16 }''',
    "second": '''feed_var { name: "x1" alias_name: "features" feed_type: 1 shape: 16 }
        fetch_var { name: "y1" alias_name: "label" fetch_type: 0 shape: 1 }''',
}


def paddle(folder, onnx=True, **files):
    """The files of a server with two engines, one after the other."""
    conf = folder / "conf"
    conf.mkdir()
    for name, text in {**PADDLE, **files}.items():
        (conf / f"{name}.prototxt").write_text(text)
    for engine in ("first", "second") if onnx else ():
        (folder / engine).mkdir()
        (folder / engine / "model.onnx").write_bytes(b"onnx")
    return conf / "infer_service.prototxt"


ALIASED = '''feed_var { name: "%s" alias_name: "%s" feed_type: 1 shape: 8 } fetch_var { name: "%s" alias_name: "%s" fetch_type: 1 shape: 8 }'''


def test_paddle(tmp_path):
    done = workflow("import", paddle(tmp_path), "-o", tmp_path / "models")
    assert done.stderr == ""
    assert sorted(p.name for p in (tmp_path / "models").iterdir()) == ["Digits", "first", "second", "w"]
    assert (tmp_path / "models" / "first" / "1" / "model.onnx").read_bytes() == b"onnx"
    text = flat((tmp_path / "models" / "w" / "config.pbtxt").read_text())
    assert 'input { name: "image" data_type: TYPE_FP32 dims: -1 dims: 784 }' in text
    assert 'output { name: "label" data_type: TYPE_INT64 dims: -1 dims: 1 }' in text
    assert 'node { name: "second" model { name: "second" } input_map { key: "x1" value: "features" }' in text
    assert 'after: "first"' in text
    service = flat((tmp_path / "models" / "Digits" / "config.pbtxt").read_text())
    assert 'node { name: "w" model { name: "w" } input_map { key: "image" value: "image" }' in service
    assert workflow("import", tmp_path / "conf" / "infer_service.prototxt", "-o", tmp_path / "models", code=1)


def test_paddle_without_onnx(tmp_path):
    service = paddle(tmp_path, onnx=False)
    done = workflow("import", service)
    assert "paddle2onnx" in done.stderr and 'name: "Digits"' in done.stdout
    done = workflow("import", service, "-o", tmp_path / "models", code=1)
    assert "model 'first' has no ONNX file" in done.stderr


def test_paddle_values_choose(tmp_path):
    done = workflow("import", paddle(tmp_path, infer_service='''services { name: "S" enable_map_request_to_workflow: true
        request_field_key: "kind" value_mapped_workflows { request_field_value: "a" workflow: "w" } }'''))
    assert 'when: "parameter(\\"kind\\") in [\\"a\\"]" node: "w"' in flat(done.stdout)


def test_paddle_names_a_workflow_twice(tmp_path):
    """Several values with one workflow are a case; a workflow that is named again is a node of its own."""
    values = "".join(f'value_mapped_workflows {{ request_field_value: "{v}" workflow: "{w}" }}' for v, w in (("a", "w"), ("b", "w")))
    service = paddle(tmp_path, infer_service=f'''services {{ name: "S" enable_map_request_to_workflow: true request_field_key: "kind" {values} }}
        services {{ name: "T" workflows: "w" workflows: "w" workflows: "w" }}''')
    text = flat(workflow("import", service).stdout)
    assert 'case { when: "parameter(\\"kind\\") in [\\"a\\", \\"b\\"]" node: "w" }' in text
    assert text.count('node { name: "w-2" model { name: "w" }') == 1 and text.count('node { name: "w-3" model { name: "w" }') == 1
    assert 'output_map { key: "label" value: "w-2_label" }' in text and 'output_map { key: "label" value: "w-3_label" }' in text


W = ' workflows: "w"'


ANSWERS = '''workflows { name: "w" workflow_type: "Sequence" nodes { name: "first" type: "GeneralInferOp" dependencies { name: "startup_op" mode: "RO" } }
    nodes { name: "answer" type: "GeneralResponseOp" %s } }'''


@pytest.mark.few(2)
@pytest.mark.parametrize("files, why", [
    ({"infer_service": 'services { name: "T"' + W * 1001 + "}"}, "service 'T': more than 1000 workflows"),
    ({"infer_service": "".join(f'services {{ name: "T{i}"{W} }}' for i in range(6000))}, "more than 10000 tensors"),
    ({"workflow": ANSWERS % ('dependencies { name: "first" mode: "RO" }' * 10000)}, "more than 10000 tensors"),
    ({"general_model": "feed_var { name: 'x' feed_type: 1 }" + "".join(f"fetch_var {{ name: 'y{i}' fetch_type: 1 }}" for i in range(10000))},
     "more than 10000 tensors"),
])
def test_paddle_files_that_would_take_long(tmp_path, files, why):
    assert why in workflow("import", paddle(tmp_path, **files), code=1).stderr


def test_what_is_imported_is_served(tmp_path):
    """The folders have all that a server needs: no link leads out of them."""
    vector = 'feed_var { name: "INPUT0" alias_name: "x" feed_type: 2 } fetch_var { name: "OUTPUT0" alias_name: "%s" fetch_type: 2 }'
    service = paddle(tmp_path, general_model=vector % "y", second=(vector % "z").replace('alias_name: "x"', 'alias_name: "y"'), infer_service='''
        services { name: "S" enable_map_request_to_workflow: true request_field_key: "kind"
                   value_mapped_workflows { request_field_value: "a" workflow: "w" } value_mapped_workflows { request_field_value: "b" workflow: "w" } }
        services { name: "T" workflows: "w" workflows: "w" }''')
    for name in ("first", "second"):
        (tmp_path / name / "model.onnx").write_bytes(onnxgen.adder(1))
    workflow("import", service, "-o", tmp_path / "models")
    for name in ("S", "T", "w"):
        workflow("check", tmp_path / "models" / name)


def paddle_refused(service, name, why):
    """In a line, after the name of the file, as it is found from the service's."""
    stderr = workflow("import", service, code=1).stderr
    file, rest = re.fullmatch(r"millrace workflow: (.*?\.prototxt)(:.*)\n", stderr).groups()
    assert os.path.realpath(file) == f"{service.parent / name}.prototxt" and rest.startswith(why), stderr


MAPPED = 'enable_map_request_to_workflow: true\n request_field_key: "%s"\n value_mapped_workflows {\n request_field_value: "%s"\n workflow: "%s" }'
TWO = 'value_mapped_workflows { request_field_value: "b"\n workflow: "w, w" }'
STEP = "workflow 'w': node 'first': "


@pytest.mark.parametrize("name, change, line, why", [
    ("workflow", ("GeneralInferOp", "GeneralCopyOp"), 3, STEP + "the op 'GeneralCopyOp' has no counterpart here"),
    ("workflow", ("Sequence", "Serial"), 1, "workflow 'w': workflow_type is 'Serial', allowed are Sequence and Parallel"),
    ("workflow", ('"w" workflow_type', '"../w" workflow_type'), 1, "'../w' is no name of a model"),
    ("workflow", ('name: "read" mode', 'name: "nothing"\n mode'), 3, STEP + "there is no node 'nothing'"),
    ("workflow", ('name: "read" mode', 'name: "first" mode'), 3, STEP + "it depends on itself"),
    ("workflow", ('"read" mode: "RO"', '"read" mode: "RX"'), 3, STEP + "mode is 'RX', allowed are RO and RW"),
    ("workflow", ('''"first" mode: "RO" } }
        nodes { name: "answer" type: "GeneralResponseOp" dependencies { name: "second"''', '''"answer" mode: "RO" } }
        nodes { name: "answer" type: "GeneralResponseOp" dependencies { name: "first"'''), 4,
     "workflow 'w': node 'second': it cannot take what 'answer' gives"),
    ("workflow", ('dependencies { name: "read" mode: "RO" }', ""), 3, STEP + "it has 0 dependencies, one is needed"),
    ("workflow", ('"first" type: "GeneralInferOp"', '"other" type: "GeneralInferOp"'), 3, "workflow 'w': node 'other': an engine of that name, with a general_model"),
    ("workflow", ('"first" type: "GeneralInferOp"', '"first" type: "GeneralRemoteOp"'), 3, STEP + "it has no address"),
    ("workflow", ('nodes { name: "second"', 'nodes { name: "first"'), 4, STEP + "the name is there twice"),
    ("workflow", ('"first" mode', '"answer" mode'), 4, "workflow 'w': node 'second': it depends on itself"),
    ("workflow", ('dependencies { name: "second" mode', 'dependencies { name: "read" mode'), 5, "workflow 'w': node 'answer': it cannot take what 'read' gives"),
    ("workflow", (PADDLE["workflow"][-96:], "}"), 1, "workflow 'w' has no GeneralResponseOp with outputs"),
    ("workflow", (PADDLE["workflow"], ""), 1, "there are no workflows"),
    ("workflow", (PADDLE["workflow"], PADDLE["workflow"] + "\n\n" + PADDLE["workflow"]), 7, "two models are named 'w'"),
    ("workflow", ('workflows { name: "w"', 'workflows { name: "first"'), 3, "node 'first': its model has the name of the workflow, 'first', which would ask itself"),
    ("general_model", ('shape: 784', "shape: 784 is_lod_tensor: true"), 1, "variable 'x0': is_lod_tensor: ragged tensors have no counterpart here"),
    ("general_model", ("fetch_type: 1", "fetch_type: 33"), 2, "variable 'y0': type 33 or its 1 dimensions are not known here"),
    ("model_toolkit", ('name: "second"', 'name: "first"'), 2, "engine 'first' is there twice"),
    ("model_toolkit", ('name: "second"', 'name: ".second"'), 2, "'.second' is no name of a model"),
    ("model_toolkit", ('"./second" }', '"./second" encrypted_model: true }'), 2, "engine 'second': encrypted and distributed models"),
    ("resource", ('"second.prototxt"', '"third.prototxt"'), 3, "general_model './conf//third.prototxt' is not there"),
    ("resource", ('"model_toolkit.prototxt"', '\n"toolkit.prototxt"'), 2, "model_toolkit './conf//toolkit.prototxt' is not there"),
    ("infer_service", (' workflows: "w"', '\n workflows: "w"\n workflows: "z"'), 3, "service 'Digits': there is no workflow 'z'"),
    ("infer_service", (' workflows: "w"', ""), 1, "service 'Digits': it has no workflows"),
    ("infer_service", (' workflows: "w"', ' workflows: "w"\n merger: "mine"'), 2, "service 'Digits': the merger 'mine' has no counterpart here"),
    ("infer_service", ('"Digits"', '"Dig/its"'), 1, "'Dig/its' is no name of a model"),
    ("infer_service", ('"Digits" workflows', '"w"\n workflows'), 2, "node 'w': its model has the name of the workflow, 'w'"),
    ("infer_service", ('"Digits"', '"first"'), 1, "two models are named 'first'"),
    ("infer_service", ('workflows: "w"', MAPPED % ("", "a", "w")), 1, "service 'Digits': request_field_key '' is no name"),
    ("infer_service", ('workflows: "w"', MAPPED % ("k", "a", "z")), 5, "service 'Digits': there is no workflow 'z'"),
    ("infer_service", ('workflows: "w"', MAPPED % ("k", "a", "w, z")), 5, "service 'Digits': there is no workflow ' z'"),
    ("infer_service", ('workflows: "w"', MAPPED % ("k", "\\\"", "w")), 3, "service 'Digits': a value with a quote"),
    ("infer_service", ('workflows: "w"', MAPPED % ("k", "a", "w") + "\n" + TWO), 6,
     "service 'Digits': the workflows of its values have different outputs: those of 'Digits-1' and of 'w'"),
])
def test_refusals_of_paddle(tmp_path, name, change, line, why):
    """With the file and the line of what is refused, whichever of the files it is in."""
    assert PADDLE[name].count(change[0]) >= 1
    paddle_refused(paddle(tmp_path, **{name: PADDLE[name].replace(*change, 1)}), name, f":{line}: {why}")


@pytest.mark.parametrize("name", PADDLE)
def test_syntax_of_paddles_files(tmp_path, name):
    paddle_refused(paddle(tmp_path, **{name: "\n nmae: 1"}), name, ": line 2 column 2: ")


def test_engines_that_batch_for_themselves(tmp_path):
    service = paddle(tmp_path, model_toolkit=PADDLE["model_toolkit"].replace('"./second"', '"./second" runtime_thread_num: 1'))
    paddle_refused(service, "workflow", ":4: workflow 'w': node 'second': runtime_thread_num is set for some engines")


def test_hostile_files(tmp_path):
    assert "aliases" in imported(tmp_path, "a: &x [1]\nb: *x\n", code=1).stderr
    assert "nested deeper than 64" in imported(tmp_path, "[" * 100000, code=1).stderr
    assert "more than 100000 values" in imported(tmp_path, "a: [" + "1," * 200000 + "1]", code=1).stderr
    assert "has 17825792 bytes, allowed are 16777216" in imported(tmp_path, "#" * (17 << 20), code=1).stderr
    assert "is there twice" in imported(tmp_path, "kind: a\nkind: b\n", code=1).stderr
    assert "the file is empty" in imported(tmp_path, "", code=1).stderr
    assert "graph.yaml:2: " in imported(tmp_path, "kind: {", code=1).stderr
    assert "this is no InferenceGraph" in imported(tmp_path, "kind: Deployment\n", code=1).stderr


def nested(depth):
    """Each node asks the next one twice: the outputs double with each."""
    steps = "{routerType: Ensemble, steps: [{nodeName: %s, name: a}, {nodeName: %s, name: b}]}"
    names = [f"n{i}" for i in range(depth)]
    lines = [f"    {name}: {steps % (to, to)}" for name, to in zip(names, [*names[1:], "last"])]
    return GRAPH.replace("    root:", "    root: " + steps % ("n0", "n0")) + "\n".join(
        [*lines, "    last: {routerType: Sequence, steps: [{serviceName: m}]}", ""])


@pytest.mark.parametrize("text, why", [
    ("kind: x\n" + "".join(f"k{i}: 1\n" for i in range(5000)), "a map with more than 4096 keys"),
    (nested(60), "the steps of the file have more than 10000 tensors"),
    (PIPELINE % ("{name: a}, {name: b, inputs: [" + ",".join(f"a.outputs.T{i}" for i in range(12000)) + "]}", "b"),
     "the steps of the file have more than 10000 tensors"),
    (PIPELINE % ("{name: a}, {name: b, inputs: [" + ",".join(f"a.outputs.T{i}" for i in range(200)) + "]}", ",".join(["a"] * 200)),
     "the steps of the file have more than 10000 tensors"),
])
def test_what_would_take_long_is_refused(tmp_path, text, why):
    assert why in imported(tmp_path, text, code=1).stderr


@pytest.mark.parametrize("text, why", [
    (GRAPH + "      routerType: Sequence\n      steps: [{serviceName: g}]\n",
     "graph.yaml:9: step 'g': the workflow of the graph's node 'root' has the name of this service"),
    (GRAPH + "      routerType: Sequence\n      steps: [{serviceUrl: 'httpx@/v2/models/a/infer'}]\n", "is no http://HOST"),
    (GRAPH + "      routerType: Sequence\n      steps: [{serviceName: m}]\n---\nkind: Deployment\n",
     "graph.yaml:11: kind is 'Deployment', allowed is InferenceGraph"),
    (PIPELINE % ("{name: a}, {name: b, inputs: [a.outputs.X], tensorMap: {a.outputs.X: [Z]}}", "b"),
     "tensorMap: 'a.outputs.X' needs the name of a tensor"),
    (PIPELINE % ('{name: a}, {name: b, triggers: ["a.outputs.x`) or (`y"]}', "b"), "is no name of a tensor"),
])
def test_refusals_of_odd_files(tmp_path, text, why):
    assert why in imported(tmp_path, text, code=1).stderr


@pytest.mark.parametrize("kind, graph", [
    ("InferenceService", GRAPH + "      routerType: Sequence\n      steps: [{serviceName: m}]\n"),
    ("Model", PIPELINE % ("{name: m}", "m")),
])
def test_models_beside_a_graph(tmp_path, kind, graph):
    """Files of users have the models as well, in front of the graph or after it."""
    model = f"apiVersion: v1\nkind: {kind}\nmetadata: {{name: m}}\nspec: {{storageUri: x}}\n"
    for text in ("---\n" + model + "---\n" + graph, graph + "---\n" + model):
        done = imported(tmp_path, text)
        assert 'model { name: "m" }' in flat(done.stdout) and f"{kind} 'm' is a model, and without effect here" in done.stderr
    assert "graph.yaml:1: this is no InferenceGraph" in imported(tmp_path, model, code=1).stderr
    assert "graph.yaml:1: there is no graph in it" in imported(
        tmp_path, model, "--from", "kserve" if kind == "InferenceService" else "seldon", code=1).stderr


def test_empty_documents_in_front(tmp_path):
    graph = GRAPH + "      routerType: Sequence\n      steps: [{serviceName: m}]\n"
    assert 'name: "g"' in imported(tmp_path, "# a comment\n---\n---" + graph).stdout


DRAWN = """
name: "drawn" platform: "workflow"
input { name: "IN" data_type: TYPE_FP32 dims: 1 } output { name: "OUT" data_type: TYPE_FP32 dims: 1 }
workflow_scheduling {
  node { name: "a" model { name: "m" } input_map { key: "x" value: "IN" } output_map { key: "y" value: "A" } }
  node { name: "b" op: "scale" when: "A[0] > 1" input_map { key: "x" value: "IN" } output_map { key: "y" value: "B" } }
  node { name: "c" model { name: "m" version: 3 } input_map { key: "x" value: "A" } input_map { key: "z" value: "B" }
         output_map { key: "y" value: "OUT" } }
}
"""


def test_draw(tmp_path):
    path = tmp_path / "config.pbtxt"
    path.write_text(DRAWN)
    assert workflow("draw", path).stdout == workflow("draw", tmp_path).stdout
    lines = workflow("draw", path).stdout.splitlines()
    assert lines[0] == "drawn" and lines[1].endswith("request  IN")
    assert "■ a (model m)  IN → A" in lines
    assert "■ b (op scale)  IN, A → B  [when A[0] > 1]" in lines
    assert "■ c (model m:3)  A, B → OUT" in lines
    dot = workflow("draw", path, "--format", "dot").stdout
    assert dot.startswith('digraph "drawn" {') and 'n1 -> n3 [label="A"];' in dot
    workflow("draw", path, "--format", "svg", "-o", tmp_path / "d.svg")
    root = ElementTree.parse(tmp_path / "d.svg").getroot()
    assert len([e for e in root.iter() if e.tag.endswith("rect")]) == 5
    assert "exists" in workflow("draw", path, "--format", "svg", "-o", tmp_path / "d.svg", code=1).stderr.lower()
    variants = " ".join(f'variant {{ name: "{name}" model {{ name: "m" }} weight: {weight} }}' for name, weight in (("x", 1000000), ("y", 2.5)))
    path.write_text(DRAWN.replace('name: "a" model { name: "m" }', f'name: "a" split {{ {variants} }}'))
    assert "■ a (split x 1000000, y 2.5)  IN → A" in workflow("draw", path).stdout.splitlines()
    name = "n" * 23 + "é"  # as long as a picture shows
    path.write_text(DRAWN.replace('"a"', f'"{name}"').replace('"c"', f'"{name}m"'))
    assert workflow("draw", path, "--format", "svg").stdout.count(f">{name}<") == 2


@pytest.mark.parametrize("text, why", [
    ('name: "m" platform: "onnxruntime_onnx"', "has neither workflow_scheduling nor ensemble_scheduling"),
    (DRAWN.replace('value: "OUT"', 'value: "A"'), "node 'c': tensor 'A' is written by 'a' as well"),
    (DRAWN.replace('key: "x" value: "IN"', 'key: "x" value: "OUT"', 1), "the nodes depend on each other in a circle"),
    (DRAWN.replace('name: "b"', 'name: "a"'), "two nodes are named 'a'"),
    ('name: "m" nodes: 3', "line 1 column 11"),
])
def test_what_is_not_drawn(tmp_path, text, why):
    path = tmp_path / "config.pbtxt"
    path.write_text(text)
    assert why in workflow("draw", path, code=1).stderr


CONTROL = "\\033[31m\\n\\302\\233\\177"  # as protobuf text: a colour, a new line, a C1 control, DEL


@pytest.mark.parametrize("form", ("text", "dot", "svg"))
def test_control_characters_in_pictures(tmp_path, form):
    path = tmp_path / "config.pbtxt"
    text = DRAWN.replace('A[0] > 1', "A[0] > 1\\033")
    for name in ("drawn", "a", "IN", "m"):
        text = text.replace(f'"{name}"', f'"{name}{CONTROL}"')
    path.write_text(text)
    out = workflow("draw", path, "--format", form).stdout
    assert len(out.splitlines()) == len(workflow("draw", plain(tmp_path), "--format", form).stdout.splitlines())
    assert_clean(out)


def plain(tmp_path):
    path = tmp_path / "plain.pbtxt"
    path.write_text(DRAWN)
    return path


def assert_clean(text):
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f]", text), text


def test_control_characters_in_messages(tmp_path):
    """A name of a model has none; others are cleaned in messages, which are a line, and escaped in what is printed."""
    bad = '"m\\e[31m\\n\\x9b"'
    for text in (PIPELINE % (f"{{name: {bad}}}", "z"), PIPELINE % ("{name: a}", bad),
                 f"kind: Experiment\nmetadata: {{name: {bad}}}\nspec: {{candidates: [{{name: a}}]}}\n"):
        done = imported(tmp_path, text, code=1)
        assert len(done.stderr.splitlines()) == 1 and "graph.yaml:" in done.stderr
        assert_clean(done.stderr)
    done = imported(tmp_path, GRAPH + f"      routerType: Sequence\n      steps: [{{serviceName: a, name: {bad}}}]\n")
    assert 'name: "m\\033[31m\\012\\302\\233"' in done.stdout
    assert_clean(done.stdout + done.stderr)
    path = tmp_path / "config.pbtxt"
    path.write_text(DRAWN.replace('name: "a"', f'name: "a{CONTROL}"').replace('"IN" data', '"OTHER" data'))
    done = workflow("check", path, code=1)
    assert len(done.stderr.splitlines()) == 1
    assert_clean(done.stderr)


def test_wrong_command_lines():
    assert "did you mean 'import'" in workflow("imports", "x", code=2).stderr
    assert "import takes one file" in workflow("import", code=2).stderr
