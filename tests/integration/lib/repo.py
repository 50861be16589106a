"""Model repositories made on the spot from config.pbtxt texts."""
import shutil
from pathlib import Path

from lib.dtypes import DTYPES

TOP = Path(__file__).resolve().parents[3]
STOCK = TOP / "tests" / "models" / "repo"


def tensor(name, dtype="TYPE_INT32", dims=(-1,), extra=""):
    return f'{{ name: "{name}" data_type: {dtype} dims: [ {", ".join(map(str, dims))} ] {extra} }}'


def config(backend="identity", max_batch_size=0, inputs=None, outputs=None, extra="", parameters=None):
    """The text of a config.pbtxt; by default one INT32 vector in and out."""
    inputs = [tensor("INPUT0")] if inputs is None else inputs
    outputs = [tensor("OUTPUT0")] if outputs is None else outputs
    lines = [f'backend: "{backend}"', f"max_batch_size: {max_batch_size}"]
    lines += [f"input [ {', '.join(inputs)} ]"] if inputs else []
    lines += [f"output [ {', '.join(outputs)} ]"] if outputs else []
    for key, value in (parameters or {}).items():
        lines.append(f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}')
    return "\n".join(lines + [extra, ""])


def add(repo, name, text=None, versions=(1,), files=None, **kw):
    """Write <repo>/<name>; text is the config.pbtxt ('' = none), kw go to config(). Returns the folder."""
    folder = Path(repo) / name
    folder.mkdir(parents=True, exist_ok=True)
    if text is None:
        text = config(**kw)
    if text:
        write(folder / "config.pbtxt", text)
    for version in versions:
        (folder / str(version)).mkdir(exist_ok=True)
    for path, data in (files or {}).items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        write(target, data)
    return folder


def write(path, data):
    """Replace a file in one step, so that a watching server never sees half of it."""
    path = Path(path)
    part = path.parent / (path.name + ".part~")
    part.write_bytes(data if isinstance(data, bytes) else data.encode())
    part.replace(path)


def change_rights(path):
    """Of a file, in a way that can be seen: the time of a change may be that of the clock's last tick."""
    before = path.stat().st_ctime_ns
    while path.stat().st_ctime_ns == before:
        path.chmod(0o640)


def stock(repo, *names):
    """Copy models of tests/models/repo."""
    for name in names:
        shutil.copytree(STOCK / name, Path(repo) / name)


def shared(repo):
    """The repository of the session's server."""
    repo = Path(repo)
    stock(repo, "simple", "simple_int8", "simple_string")
    for d in DTYPES:
        low = d.name.lower()
        io = dict(inputs=[tensor("INPUT0", d.config)], outputs=[tensor("OUTPUT0", d.config)])
        add(repo, f"flat_{low}", **io)
        labelled = tensor("OUTPUT0", d.config, (-1,), 'label_filename: "labels.txt"')
        add(repo, f"batch_{low}", max_batch_size=8, inputs=io["inputs"], outputs=[labelled],
            files={"labels.txt": "cat\ndog\nbird\n"})
    grid = dict(inputs=[tensor("INPUT0", "TYPE_FP32", (-1, -1))], outputs=[tensor("OUTPUT0", "TYPE_FP32", (-1, -1))])
    add(repo, "grid", **grid)
    add(repo, "scalar", inputs=[tensor("INPUT0", "TYPE_FP32", (1,), "reshape { }")],
        outputs=[tensor("OUTPUT0", "TYPE_FP32", (1,), "reshape { }")])
    add(repo, "pair", max_batch_size=4, inputs=[tensor("INPUT0", dims=(4,)), tensor("INPUT1", dims=(4,))],
        outputs=[tensor("OUTPUT0", dims=(4,)), tensor("OUTPUT1", dims=(4,))])
    add(repo, "optional", inputs=[tensor("INPUT0"), tensor("INPUT1", extra="optional: true")])
    add(repo, "versions", versions=(1, 2, 10), extra="version_policy { all { } }")
    add(repo, "fault", backend="fault", extra='instance_group [ { count: 4 kind: KIND_CPU } ]')
    add(repo, "slow", backend="fault")
    add(repo, "stringfault", backend="fault", inputs=[tensor("INPUT0", "TYPE_STRING")],
        outputs=[tensor("OUTPUT0", "TYPE_STRING")])
    return repo
