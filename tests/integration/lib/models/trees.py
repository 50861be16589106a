"""Models of boosted trees: XGBoost's and LightGBM's, trained on the spot, and where their libraries are."""
import importlib.util
import json
from pathlib import Path

import numpy as np

FEATURES = 5
CLASSES = 3
LIBRARIES = {"xgboost": "lib/libxgboost.so", "lightgbm": "lib/lib_lightgbm.so"}


def library(name):
    """The path of the C library that the Python package brings."""
    folder = importlib.util.find_spec(name).submodule_search_locations[0]
    return str(Path(folder) / LIBRARIES[name])


def options(*more):
    return [f"--backend-config={name},library={library(name)}" for name in LIBRARIES] + list(more)


def rows(count, seed=2):
    """A matrix with missing values."""
    random = np.random.default_rng(seed)
    x = random.normal(size=(count, FEATURES)).astype(np.float32)
    x[random.random(x.shape) < 0.2] = np.nan
    return x


def targets(x):
    """For each kind of model: what it learns."""
    total = np.nansum(x, axis=1)
    return {"regression": total, "binary": (total > 0).astype(int), "classes": np.digitize(total, [-1, 1])}


def xgboost(kind, booster="gbtree", estimator=None, rounds=8, best=None, **parameters):
    """A booster of XGBoost; estimator: that of scikit-learn's interface which wrote it."""
    import xgboost as xgb

    objective = {"regression": "reg:squarederror", "binary": "binary:logistic", "classes": "multi:softprob"}[kind]
    x = rows(300, seed=1)
    x = np.nan_to_num(x) if booster == "gblinear" else x
    learned = {"objective": objective, "booster": booster, "nthread": 1, "verbosity": 0, "max_depth": 3, **parameters}
    if kind == "classes":
        learned["num_class"] = CLASSES
    model = xgb.train(learned, xgb.DMatrix(x, targets(x)[kind]), rounds)
    if estimator:
        model.set_attr(scikit_learn=json.dumps({"_estimator_type": estimator}))
    if best is not None:
        model.set_attr(best_iteration=str(best))
    return model


def xgboost_of_targets(count):
    """A regression that predicts several numbers, by trees whose leaves hold all of them."""
    import xgboost as xgb

    x = rows(300, seed=1)
    y = np.stack([np.nansum(x, axis=1) * (i + 1) for i in range(count)], axis=1)
    return xgb.train({"multi_strategy": "multi_output_tree", "nthread": 1, "max_depth": 3}, xgb.DMatrix(x, y), 8)


def lightgbm(kind, rounds=8, **parameters):
    import lightgbm as lgb

    objective = {"regression": "regression", "binary": "binary", "classes": "multiclass"}[kind]
    x = rows(300, seed=1)
    learned = {"objective": objective, "num_threads": 1, "verbosity": -1, "num_leaves": 7, **parameters}
    if kind == "classes":
        learned["num_class"] = CLASSES
    return lgb.train(learned, lgb.Dataset(x, targets(x)[kind]), rounds)


def predicted(model, x, **arguments):
    """What Python answers, always as a matrix."""
    predict = getattr(model, "inplace_predict", model.predict)
    return np.asarray(predict(x, **arguments)).reshape(len(x), -1)


def save(model, repo, name, file, text=""):
    """A model's folder, without a configuration unless `text` is one."""
    folder = Path(repo) / name
    (folder / "1").mkdir(parents=True)
    model.save_model(str(folder / "1" / file))
    if text:
        (folder / "config.pbtxt").write_text(text)
    return folder
