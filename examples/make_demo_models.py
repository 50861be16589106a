#!/usr/bin/env python3
"""Makes the models of the demonstration from real data, and the rows that the demonstration asks about.

    python3 -m venv /tmp/venv && /tmp/venv/bin/pip install scikit-learn onnx onnxruntime
    /tmp/venv/bin/python examples/make_demo_models.py

The data sets come with scikit-learn: 1,797 handwritten digits of 8 x 8 pixels, the chemical analysis of 178 wines
from three growers, and ten measurements of 442 diabetes patients with the progression of the disease a year later.
From each, a quarter is held out; the accuracy that is printed is that of the written ONNX file on this part.

    examples/models/<model>/config.pbtxt, <model>/1/model.onnx     a Triton model repository
    examples/data/<model>.json                                     held-out rows with the true answers

What is committed was made with scikit-learn 1.9 and onnx 1.23; other versions give slightly different weights. The
graphs are put together by hand below: it shows what is in them, and needs no converter.
"""

import json
import pathlib

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from sklearn.datasets import load_diabetes, load_digits, load_wine
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import RidgeCV
from sklearn.metrics import r2_score
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler

HERE = pathlib.Path(__file__).parent
SEED = 20
ROWS = 40  # held-out rows that are kept for the demonstration


def value(name, onnx_type, *dims):
    return helper.make_tensor_value_info(name, onnx_type, ["batch", *dims])


def constant(name, array, dtype=np.float32):
    return numpy_helper.from_array(np.asarray(array, dtype), name)


def save(name, nodes, inputs, outputs, initializers, config, labels=None):
    """Writes one model of the repository and gives a session on the written file."""
    graph = helper.make_graph(nodes, name, inputs, outputs, initializer=initializers)
    model = helper.make_model(graph, ir_version=8, producer_name="millrace-demo",
                              opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)])
    onnx.checker.check_model(model)
    folder = HERE / "models" / name
    (folder / "1").mkdir(parents=True, exist_ok=True)
    (folder / "1" / "model.onnx").write_bytes(model.SerializeToString(deterministic=True))
    (folder / "config.pbtxt").write_text(config.lstrip())
    if labels is not None:
        (folder / "labels.txt").write_text("".join(f"{label}\n" for label in labels))
    return onnxruntime.InferenceSession(str(folder / "1" / "model.onnx"))


def save_rows(name, about, rows):
    """One row per line, so that a diff and a person can read it."""
    (HERE / "data").mkdir(exist_ok=True)
    lines = ",\n".join(json.dumps(row) for row in rows)
    (HERE / "data" / f"{name}.json").write_text(f'{{"about": {json.dumps(about)},\n"rows": [\n{lines}\n]}}\n')


def digits():
    """A dense net on images of handwritten digits: class and the probability of each class."""
    images, labels = load_digits(return_X_y=True)
    train_x, test_x, train_y, test_y = train_test_split(images.astype(np.float32), labels, test_size=0.25,
                                                        random_state=SEED, stratify=labels)
    net = MLPClassifier((64, 32), alpha=0.05, max_iter=800, random_state=SEED).fit(train_x / 16, train_y)

    nodes = [helper.make_node("Flatten", ["image"], ["pixels"], axis=1),
             helper.make_node("Div", ["pixels", "sixteen"], ["x0"])]
    initializers = [constant("sixteen", 16)]
    for i, (weight, bias) in enumerate(zip(net.coefs_, net.intercepts_)):
        initializers += [constant(f"weight{i}", weight), constant(f"bias{i}", bias)]
        nodes.append(helper.make_node("Gemm", [f"x{i}", f"weight{i}", f"bias{i}"], [f"z{i}"]))
        if i + 1 < len(net.coefs_):
            nodes.append(helper.make_node("Relu", [f"z{i}"], [f"x{i + 1}"]))
    nodes += [helper.make_node("Softmax", [f"z{len(net.coefs_) - 1}"], ["probabilities"], axis=1),
              helper.make_node("ArgMax", ["probabilities"], ["digit"], axis=1, keepdims=1)]

    session = save("digits", nodes, [value("image", TensorProto.FLOAT, 8, 8)],
                   [value("digit", TensorProto.INT64, 1), value("probabilities", TensorProto.FLOAT, 10)],
                   initializers, """
# Handwritten digits, 8 x 8 pixels of 0 (paper) to 16 (ink).
name: "digits"
backend: "onnxruntime"
max_batch_size: 64
input { name: "image" data_type: TYPE_FP32 dims: [8, 8] }
output { name: "digit" data_type: TYPE_INT64 dims: [1] }
output { name: "probabilities" data_type: TYPE_FP32 dims: [10] label_filename: "labels.txt" }
dynamic_batching { max_queue_delay_microseconds: 500 }
""", labels=range(10))
    said = session.run(["digit"], {"image": test_x.reshape(-1, 8, 8)})[0][:, 0]
    save_rows("digits", "8 x 8 pixels of 0..16, row by row, and the digit that was written",
              [{"image": [int(p) for p in x], "digit": int(y)} for x, y in zip(test_x[:ROWS], test_y)])
    return f"{np.mean(said == test_y):.1%} of {len(test_y)} digits right"


def tree_attributes(forest):
    """A forest of scikit-learn as the attributes of TreeEnsembleClassifier."""
    a = {key: [] for key in ("nodes_treeids", "nodes_nodeids", "nodes_featureids", "nodes_modes", "nodes_values",
                             "nodes_truenodeids", "nodes_falsenodeids", "class_treeids", "class_nodeids", "class_ids",
                             "class_weights")}
    for number, estimator in enumerate(forest.estimators_):
        tree = estimator.tree_
        for node in range(tree.node_count):
            is_leaf = tree.children_left[node] == -1
            a["nodes_treeids"].append(number)
            a["nodes_nodeids"].append(node)
            a["nodes_modes"].append("LEAF" if is_leaf else "BRANCH_LEQ")
            a["nodes_featureids"].append(0 if is_leaf else int(tree.feature[node]))
            # the largest float that is not above the threshold: "x <= threshold" stays what it was for floats
            threshold = np.float32(0 if is_leaf else tree.threshold[node])
            if not is_leaf and float(threshold) > tree.threshold[node]:
                threshold = np.nextafter(threshold, np.float32(-np.inf))
            a["nodes_values"].append(float(threshold))
            a["nodes_truenodeids"].append(0 if is_leaf else int(tree.children_left[node]))
            a["nodes_falsenodeids"].append(0 if is_leaf else int(tree.children_right[node]))
            if is_leaf:
                share = tree.value[node][0] / tree.value[node][0].sum() / len(forest.estimators_)
                for label, weight in enumerate(share):
                    a["class_treeids"].append(number)
                    a["class_nodeids"].append(node)
                    a["class_ids"].append(label)
                    a["class_weights"].append(float(weight))
    return a


def wine():
    """A forest on the analysis of a wine: the grower as a string, and the share of trees for each."""
    data = load_wine()
    names = [str(n) for n in data.target_names]
    train_x, test_x, train_y, test_y = train_test_split(data.data.astype(np.float32), data.target, test_size=0.25,
                                                        random_state=SEED, stratify=data.target)
    forest = RandomForestClassifier(60, max_depth=5, random_state=SEED).fit(train_x, train_y)
    nodes = [helper.make_node("TreeEnsembleClassifier", ["features"], ["label", "probabilities"], domain="ai.onnx.ml",
                              classlabels_strings=names, post_transform="NONE", **tree_attributes(forest)),
             helper.make_node("Unsqueeze", ["label", "one"], ["cultivar"])]
    session = save("wine", nodes, [value("features", TensorProto.FLOAT, 13)],
                   [value("cultivar", TensorProto.STRING, 1), value("probabilities", TensorProto.FLOAT, 3)],
                   [constant("one", [1], np.int64)], f"""
# Which of three cultivars a wine is from, by 13 measurements:
# {", ".join(data.feature_names[:7])},
# {", ".join(data.feature_names[7:])}
name: "wine"
backend: "onnxruntime"
max_batch_size: 64
input {{ name: "features" data_type: TYPE_FP32 dims: [13] }}
output {{ name: "cultivar" data_type: TYPE_STRING dims: [1] }}
output {{ name: "probabilities" data_type: TYPE_FP32 dims: [3] label_filename: "labels.txt" }}
""", labels=names)
    said = session.run(["cultivar"], {"features": test_x})[0][:, 0]
    save_rows("wine", "13 measurements (" + ", ".join(data.feature_names) + ") and the cultivar",
              [{"features": [round(float(v), 3) for v in x], "cultivar": names[y]}
               for x, y in zip(test_x[:ROWS], test_y)])
    return f"{np.mean(said == np.array(names)[test_y]):.1%} of {len(test_y)} wines right"


def diabetes():
    """A regression with an input for each column; one of them is a category in text."""
    data = load_diabetes(scaled=False)
    columns = list(data.feature_names)
    sex = columns.index("sex")
    train_x, test_x, train_y, test_y = train_test_split(data.data, data.target, test_size=0.25, random_state=SEED)
    # products of two columns help a little; all of it is one matrix product in the end
    model = make_pipeline(StandardScaler(), PolynomialFeatures(2, include_bias=False), StandardScaler(),
                          RidgeCV(np.logspace(0, 4, 30))).fit(train_x, train_y)
    scale, products, scale2, ridge = (step for _, step in model.steps)
    pairs = [(i, j) for i in range(len(columns)) for j in range(i, len(columns))]
    assert products.n_output_features_ == len(columns) + len(pairs)

    nodes = [helper.make_node("LabelEncoder", ["sex"], ["sex_number"], domain="ai.onnx.ml", keys_strings=["1", "2"],
                              values_floats=[1.0, 2.0], default_float=float(scale.mean_[sex])),
             helper.make_node("Concat", [c if c != "sex" else "sex_number" for c in columns], ["raw"], axis=1),
             helper.make_node("Sub", ["raw", "mean"], ["centred"]),
             helper.make_node("Div", ["centred", "deviation"], ["x"]),
             helper.make_node("Gather", ["x", "left"], ["x_left"], axis=1),
             helper.make_node("Gather", ["x", "right"], ["x_right"], axis=1),
             helper.make_node("Mul", ["x_left", "x_right"], ["xx"]),
             helper.make_node("Concat", ["x", "xx"], ["terms"], axis=1),
             helper.make_node("Gemm", ["terms", "weight", "bias"], ["progression"])]
    weight = ridge.coef_ / scale2.scale_
    bias = ridge.intercept_ - np.sum(weight * scale2.mean_)
    initializers = [constant("mean", scale.mean_), constant("deviation", scale.scale_),
                    constant("left", [i for i, _ in pairs], np.int64), constant("right", [j for _, j in pairs], np.int64),
                    constant("weight", weight.reshape(-1, 1)), constant("bias", [bias])]
    inputs = "".join(f'input {{ name: "{c}" data_type: {"TYPE_STRING" if c == "sex" else "TYPE_FP32"} dims: [1] }}\n'
                     for c in columns)
    session = save("diabetes", nodes,
                   [value(c, TensorProto.STRING if c == "sex" else TensorProto.FLOAT, 1) for c in columns],
                   [value("progression", TensorProto.FLOAT, 1)], initializers, f"""
# Progression of diabetes after a year (25..346) from age, sex ("1" or "2", as the data set codes it),
# body mass index, blood pressure and six blood serum values.
name: "diabetes"
backend: "onnxruntime"
max_batch_size: 64
{inputs}output {{ name: "progression" data_type: TYPE_FP32 dims: [1] }}
""")
    feeds = {c: test_x[:, [i]].astype(np.float32) for i, c in enumerate(columns)}
    feeds["sex"] = np.array([[str(int(v))] for v in test_x[:, sex]], dtype=object)
    said = session.run(["progression"], feeds)[0][:, 0]
    rows = [dict({c: (str(int(v)) if c == "sex" else round(float(v), 4)) for c, v in zip(columns, x)},
                 progression=float(y)) for x, y in zip(test_x[:ROWS], test_y)]
    save_rows("diabetes", "the ten columns, sex as text, and the progression after a year", rows)
    error = np.mean(np.abs(said - test_y))
    return f"R2 {r2_score(test_y, said):.2f}, mean error {error:.0f} on {len(test_y)} patients (values 25..346)"


def main():
    for make in (digits, wine, diabetes):
        print(f"{make.__name__:10s}{make()}")


if __name__ == "__main__":
    main()
