"""`millrace batch run --local`: the model in the process of the job."""
import collections
import json
import signal
import subprocess
import time

import numpy
import pytest

from lib import batch, onnxgen, repo, wait
from lib.hold import Hold
from lib.models import graphs

pytestmark = batch.pytestmark
IO = {"inputs": [repo.tensor("x", "TYPE_FP32", [batch.WIDTH])], "outputs": [repo.tensor("y", "TYPE_FP32", [batch.WIDTH])]}


def model(folder, backend="identity", max_batch_size=64, **kw):
    repo.add(folder / "models", "m", backend=backend, max_batch_size=max_batch_size, **IO, **kw)


def command(folder, *args):
    return [str(batch.BIN), "batch", "run", "-i", str(folder / "in"), "-m", "m", "--local", str(folder / "models"), "-o",
            str(folder / "out"), "--keep", "id", *map(str, args)]


def run(folder, *args, code=0):
    done = subprocess.run(command(folder, *args), capture_output=True, text=True, env=batch.environment(),
                          timeout=wait.PATIENCE)
    assert done.returncode == code, f"{done.returncode}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
    return done


def check(folder, x, gone=()):
    """Each row once, as it was."""
    t = batch.results(folder)
    key = t["id"].to_numpy()
    assert collections.Counter(key.tolist()) == collections.Counter(numpy.setdiff1d(numpy.arange(len(x)), gone).tolist())
    assert (t["y"].combine_chunks().flatten().to_numpy().reshape(-1, batch.WIDTH) == x[key]).all()


@pytest.mark.parametrize("max_batch_size,rows", [(64, 50), (64, 200), (0, 100)])
def test_all_is_well(tmp_path, max_batch_size, rows):
    """Also with calls that the model does not take, and a model that takes one row at a time."""
    x = batch.table(tmp_path / "in", 3000)
    model(tmp_path, max_batch_size=max_batch_size)
    run(tmp_path, "--batch-rows", rows)
    check(tmp_path, x)
    report = json.loads((tmp_path / "out/report.json").read_text())
    assert [h["address"] for h in report["hosts"]] == ["local"] and report["hosts"][0]["rows"] == 3000


def test_onnx(tmp_path):
    """A model without configuration, whose batch is a dimension of the file."""
    x = batch.table(tmp_path / "in", 1000)
    repo.add(tmp_path / "models", "m", text="", files={"1/model.onnx": onnxgen.dense(1, batch.WIDTH, 7)})
    run(tmp_path, "--map", "INPUT0=x")
    t = batch.results(tmp_path)
    w = onnxgen.matrix(numpy.random.default_rng(7), batch.WIDTH)
    y = t["OUTPUT0"].combine_chunks().flatten().to_numpy().reshape(-1, batch.WIDTH)
    assert len(y) == 1000 and numpy.allclose(y, numpy.tanh(x[t["id"].to_numpy()] @ w), atol=1e-5)


def test_beside_hosts(tmp_path):
    """Hosts with another model are cordoned, the rest is done here."""
    x = batch.table(tmp_path / "in", 3000)
    model(tmp_path)
    with batch.hosts(batch.Host) as (addresses, made):
        run(tmp_path, "--hosts", addresses[0])
        assert made[0].calls == 0
    check(tmp_path, x)


def test_poisoned_row(tmp_path):
    x = batch.table(tmp_path / "in", 1000, bad={77: None})
    model(tmp_path)
    run(tmp_path)
    check(tmp_path, x, gone=[77])


def test_model_that_fails(tmp_path):
    """As with hosts: nothing succeeds, so no row is to blame, and the job ends."""
    batch.table(tmp_path / "in", 100)
    model(tmp_path, backend="fault", parameters={"fail_status": "INTERNAL", "fail_message": "no luck today"})
    done = run(tmp_path, "--max-outage", "2s", code=1)
    assert "no host has worked" in done.stderr


def test_model_that_fails_now_and_then(tmp_path):
    x = batch.table(tmp_path / "in", 2000)
    model(tmp_path, backend="fault", parameters={"fail_status": "INTERNAL", "fail_every": "3"})
    run(tmp_path, "--max-attempts", 50)  # one row may be the third again and again while others are between
    check(tmp_path, x)


def test_killed_and_run_again(tmp_path):
    x = batch.table(tmp_path / "in", 30000)
    model(tmp_path, max_batch_size=8)
    args = "--batch-rows", 8, "--extent-rows", 100, "--commit-interval", "1s", "--part-bytes", "20KiB"
    for k in range(4):
        job = subprocess.Popen(command(tmp_path, *args), stderr=subprocess.DEVNULL, env=batch.environment())
        time.sleep(0.1 * (k + 1) * wait.SLOW)
        job.kill()
        job.wait()
    run(tmp_path, *args)
    check(tmp_path, x)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_stopped_while_it_executes(tmp_path, number):
    """Running calls finish, waiting ones do not start, and the next start does the rest."""
    x = batch.table(tmp_path / "in", 1000)
    hold = Hold(tmp_path)
    model(tmp_path, backend="fault", parameters=hold.parameters)
    job = subprocess.Popen(command(tmp_path), stderr=subprocess.PIPE, text=True, env=batch.environment())
    hold.wait_held()
    job.send_signal(number)
    wait.until(lambda: not (tmp_path / "out/control").exists(), "the job to end its calls")
    hold.end()
    _, err = job.communicate(timeout=wait.PATIENCE)
    assert job.returncode == 1 and "stopped" in err
    run(tmp_path)
    check(tmp_path, x)


def test_another_signal_ends_it_at_once(tmp_path):
    batch.table(tmp_path / "in", 1000)
    hold = Hold(tmp_path)
    model(tmp_path, backend="fault", parameters=hold.parameters)
    job = subprocess.Popen(command(tmp_path), stderr=subprocess.DEVNULL, env=batch.environment())
    hold.wait_held()
    job.send_signal(signal.SIGINT)
    wait.until(lambda: not (tmp_path / "out/control").exists(), "the job to end its calls")
    job.send_signal(signal.SIGTERM)
    assert job.wait(wait.PATIENCE) == -signal.SIGTERM
    hold.end()


@pytest.mark.parametrize("prepare,text", [
    (lambda f: model(f, backend="fault", parameters={"fail_open": "1", "fail_message": "no room for weights"}), "no room for weights"),
    (lambda f: (f / "models").mkdir(), "model 'm' of"),
    (lambda f: None, "models"),
])
def test_model_that_does_not_load(tmp_path, prepare, text):
    batch.table(tmp_path / "in", 10)
    prepare(tmp_path)
    done = run(tmp_path, code=1)
    assert text in done.stderr and not (tmp_path / "out").exists()


@pytest.mark.parametrize("kind", ["ensemble", "workflow"])
def test_a_graph(tmp_path, kind):
    """A graph runs in the process of the job with the models that it asks, and with its policies."""
    x = batch.table(tmp_path / "in", 1000)
    for name in ("first", "second"):
        repo.add(tmp_path / "models", name, max_batch_size=64, **IO)
    io = IO | {"max_batch_size": 64}
    steps = [("first", {"x": "x"}, {"y": "t"}), ("second", {"x": "t"}, {"y": "y"})]
    made = (graphs.ensemble(*(graphs.step(*s) for s in steps), **io) if kind == "ensemble" else
            graphs.workflow(*(graphs.node(s[0], *s) for s in steps), **io))
    repo.add(tmp_path / "models", "m", made)
    run(tmp_path, "--batch-rows", 50)
    check(tmp_path, x)


def test_a_graph_that_is_wrong(tmp_path):
    batch.table(tmp_path / "in", 10)
    repo.add(tmp_path / "models", "m", graphs.ensemble(graphs.step("none", {"x": "x"}, {"y": "y"}), **IO))
    assert "ensemble m contains models that are not available or ambiguous: none" in run(tmp_path, code=1).stderr
