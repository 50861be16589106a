"""Load requests that name an archive by its address, below what --allow-model-url says."""
import hashlib
import subprocess
import tarfile

import pytest

from lib import onnxgen, pymodels, repo, wait
from lib.control import Control, GrpcControl
from lib.server import BIN
from lib.services import s3
from lib.services.web import serving


@pytest.fixture
def web():
    with serving() as server:
        yield server


def adder(folder, k, name="m", versions=(1,)):
    """An archive of a model that adds k, and its checksum."""
    repo.add(folder, name, onnxgen.ADDER_CONFIG, versions=versions, files={f"{v}/model.onnx": onnxgen.adder(k) for v in versions})
    target = folder / "a.tar.gz"
    with tarfile.open(target, "w:gz") as t:
        t.add(folder / name, name)
    return target.read_bytes(), hashlib.sha256(target.read_bytes()).hexdigest()


@pytest.fixture
def explicit_web(start, models, web):
    """explicit_web(*options): a server that takes what is below /in/ of the web server."""
    made = []

    def make(*options, repos=models):
        server = start(repos, f"--allow-model-url={web.url}/in/", *options, mode="explicit")
        made.append(Control(server))
        return server, made[-1]

    yield make
    [c.close() for c in made]


@pytest.mark.parametrize("kind", ["rest", "grpc", "cli"])
def test_load(explicit_web, web, tmp_path, kind):
    """By a name of the request; gone with an unload."""
    web.files["/in/a.tar.gz"], sha256 = adder(tmp_path / "a", 1)
    server, control = explicit_web()
    url = f"{web.url}/in/a.tar.gz"
    if kind == "rest":
        control.load("other", url=url, sha256=sha256).ok()
    elif kind == "grpc":
        assert GrpcControl(server).load("other", url=url, sha256=sha256) is None
    else:
        subprocess.run([BIN, "model", "load", "other", f"--from={url}", f"--sha256={sha256.upper()}", f"--url={server.url('http')}"], check=True)
    assert control.answer("other") == ([2, 3], "1")
    assert control.states("other") == {"1": "READY"}
    control.load("other").ok()  # again what is there
    control.unload("other").ok()
    assert control.infer("other").status != 200 and "READY" not in control.states("other").values()
    assert "failed to load 'other'" in control.load("other").error


def test_updates(explicit_web, web, tmp_path):
    """Another archive under the name is an update; one that cannot be used, or is not there, leaves what serves."""
    web.files["/in/1.tar.gz"], first = adder(tmp_path / "1", 1)
    web.files["/in/2.tar.gz"], second = adder(tmp_path / "2", 2, versions=(1, 2))
    _, control = explicit_web()
    control.load("m", url=f"{web.url}/in/1.tar.gz", sha256=first).ok()
    assert control.answer("m") == ([2, 3], "1")
    for url, sha256, text in (("3.tar.gz", second, "HTTP status 404"), ("1.tar.gz", second, f"has the SHA-256 {first}, not {second}")):
        assert text in control.load("m", url=f"{web.url}/in/{url}", sha256=sha256).error
        assert control.answer("m") == ([2, 3], "1")
        control.load("m").ok()
    control.load("m", url=f"{web.url}/in/2.tar.gz#sha256={second}").ok()
    assert control.answer("m") == ([3, 4], "2")
    count = len(web.asked)
    control.load("m", url=f"{web.url}/in/1.tar.gz", sha256=first).ok()
    assert control.answer("m") == ([2, 3], "1") and len(web.asked) == count  # it is in the cache


@pytest.mark.parametrize("answers,text", [
    ([(206, b"", {"Content-Range": "bytes 0-99/1000"})], "with the range 'bytes 0-99/1000' and 0 bytes"),
    ([(404, b"", {"Location": "/in/a.tar.gz"})], "HTTP status 404"),
    ([(200, True, {"Location": "/in/none"})], ""),
    ([(206, b"x" * 10, {"Content-Range": "bytes 0-9/20"}), (503, b"", {}), (200, True, {})], ""),
    ([(206, b"x" * 100_000, {"Content-Range": "bytes 0-99999/200000"}), (503, b"", {}), (200, True, {})], ""),
])
def test_odd_answers(explicit_web, web, tmp_path, answers, text):
    """Each request is answered by the next of these; True is the archive."""
    content, sha256 = adder(tmp_path / "a", 1)
    web.files["/in/a.tar.gz"] = content
    web.answers["/in/odd.tar.gz"] = [(status, content if body is True else body, headers) for status, body, headers in answers]
    _, control = explicit_web()
    reply = control.load("m", url=f"{web.url}/in/odd.tar.gz", sha256=sha256)
    if text:
        assert text in reply.error
    else:
        reply.ok()
        assert control.answer("m") == ([2, 3], "1") and not web.answers["/in/odd.tar.gz"]


def test_a_broken_model(explicit_web, web, tmp_path):
    """Is not there afterwards, and with one that serves goes on serving."""
    repo.add(tmp_path / "b", "m", onnxgen.ADDER_CONFIG, files={"1/model.onnx": b"none"})
    with tarfile.open(tmp_path / "b.tar", "w") as t:
        t.add(tmp_path / "b" / "m", "m")
    web.files["/in/b.tar"] = (tmp_path / "b.tar").read_bytes()
    broken = {"url": f"{web.url}/in/b.tar", "sha256": hashlib.sha256(web.files["/in/b.tar"]).hexdigest()}
    web.files["/in/a.tar.gz"], sha256 = adder(tmp_path / "a", 1)
    _, control = explicit_web()
    assert "not a valid ONNX model" in control.load("m", **broken).error
    assert "READY" not in control.states("m").values()
    control.load("m", url=f"{web.url}/in/a.tar.gz", sha256=sha256).ok()
    assert "not a valid ONNX model" in control.load("m", **broken).error
    assert control.answer("m") == ([2, 3], "1") and control.states("m") == {"1": "READY"}
    control.load("m", url=f"{web.url}/in/a.tar.gz", sha256=sha256).ok()


def test_beside_a_repository(explicit_web, web, models, tmp_path):
    """A name of a repository is taken; the other way round the load of the repository's model is refused until an unload."""
    web.files["/in/a.tar.gz"], sha256 = adder(tmp_path / "a", 1)
    repo.add(models, "mine")
    _, control = explicit_web()
    given = {"url": f"{web.url}/in/a.tar.gz", "sha256": sha256}
    assert "a model repository has a model of that name" in control.load("mine", **given).error
    control.load("mine").ok()
    assert "a model repository has a model of that name" in control.load("mine", **given).error
    assert control.states("mine") == {"1": "READY"} and control.answer("mine") == ([1, 2], "1")
    control.load("late", **given).ok()
    repo.add(models, "late")
    assert "two or more repositories" in control.load("late").error
    assert control.answer("late") == ([2, 3], "1")
    control.unload("late").ok()
    control.load("late").ok()
    assert control.answer("late") == ([1, 2], "1")


def test_a_config_beside_it(explicit_web, web, tmp_path):
    web.files["/in/a.tar.gz"], sha256 = adder(tmp_path / "a", 1)
    _, control = explicit_web("--allow-backend=onnxruntime")
    config = {"backend": "onnxruntime", "max_batch_size": 0, "parameters": {"mine": {"string_value": "x"}},
              "input": [{"name": "INPUT0", "data_type": "TYPE_INT32", "dims": [-1]}], "output": [{"name": "OUTPUT0", "data_type": "TYPE_INT32", "dims": [-1]}]}
    control.load("m", config, url=f"{web.url}/in/a.tar.gz", sha256=sha256).ok()
    assert control.answer("m") == ([2, 3], "1")
    assert control.rest.get("/v2/models/m/config").ok().json()["parameters"]["mine"] == {"string_value": "x"}


def test_a_restart_forgets_it(start, explicit_web, web, models, tmp_path):
    web.files["/in/a.tar.gz"], sha256 = adder(tmp_path / "a", 1)
    server, control = explicit_web()
    control.load("m", url=f"{web.url}/in/a.tar.gz", sha256=sha256).ok()
    server.stop()
    _, control = explicit_web()
    assert control.index() == [] and "failed to load 'm'" in control.load("m").error
    control.load("m", url=f"{web.url}/in/a.tar.gz", sha256=sha256).ok()


@pytest.mark.parametrize("kind", ["rest", "grpc"])
def test_refused(explicit_web, web, tmp_path, kind):
    content, sha256 = adder(tmp_path / "a", 1)
    web.files["/in/a.tar.gz"] = web.files["/secret/a.tar.gz"] = content
    server, control = explicit_web()
    loader = GrpcControl(server) if kind == "grpc" else control

    def error(**kw):
        got = loader.load("m", **kw)
        return got[1] if kind == "grpc" else got.error

    for path, text in (("/secret/a.tar.gz", "is below no address of --allow-model-url"), ("/in/../secret/a.tar.gz", "has '/../' in it"),
                       ("/in/%2e%2e/secret/a.tar.gz", "has '%' in it"), ("/in/a.rar", "is not the address of an archive")):
        assert text in error(url=web.url + path, sha256=sha256)
    url = f"{web.url}/in/a.tar.gz"
    for given, text in (({"url": url}, "has no checksum"), ({"url": url, "sha256": "12"}, "'sha256' parameter has 2 characters"),
                        ({"url": url, "sha256": "g" * 64}, "the checksum has a 'g'"), ({"sha256": sha256}, "needs a 'url' parameter"),
                        ({"url": f"{url}#sha256={sha256}", "sha256": sha256}, "sha256"), ({"url": "m"}, "is no address"), ({"url": ""}, "is no address"),
                        ({"url": "/etc/passwd"}, "is no address"), ({"url": "file:/etc/passwd"}, "is below no address"),
                        ({"url": "s3://in/a.tar"}, "is below no address"), ({"url": "http://127.0.0.1@evil/in/a.tar"}, "is below no address"),
                        ({"url": url + "x" * 5000}, "is no address"),
                        ({"url": url, "sha256": sha256, "config": "{}", "files": {"1/x": b"x"}}, "'url' and 'file:' parameters exclude each other")):
        assert text in error(**given), given
    assert web.asked == [] and control.index() == []


def test_not_without_the_option(start, models):
    with Control(start(models, mode="explicit")) as control:
        reply = control.load("m", url="https://host/a.tar", sha256="0" * 64)
        assert reply.status == 403 and "--allow-model-url" in reply.error


@pytest.mark.parametrize("mode", ["none", "poll"])
def test_explicit_only(models, mode):
    done = subprocess.run([BIN, "serve", f"--model-repository={models}", f"--model-control-mode={mode}", "--allow-model-url=https://host/"],
                          capture_output=True, text=True, timeout=wait.PATIENCE)
    assert done.returncode == 2 and "--allow-model-url needs --model-control-mode=explicit" in done.stderr


def test_files(start, tmp_path):
    """An archive, with a checksum or without, and folders, which follow their files; links that lead out of the folder are none."""
    store = tmp_path / "store"
    _, sha256 = adder(store, 1)
    repo.add(tmp_path, "elsewhere")
    (store / "out").symlink_to(tmp_path / "elsewhere")
    with Control(start([], f"--allow-model-url=file://{store}/", mode="explicit")) as control:
        for name, given in (("a", {"url": f"file:{store}/a.tar.gz"}), ("b", {"url": f"file://{store}/a.tar.gz", "sha256": sha256}), ("c", {"url": f"file:{store}/m"})):
            control.load(name, **given).ok()
            assert control.answer(name) == ([2, 3], "1")
        for given, text in (({"url": f"file:{store}/out"}, "leads out of"), ({"url": f"file:{store}/../elsewhere"}, "has '/../' in it"),
                            ({"url": f"file:{store}/a.tar.gz", "sha256": "0" * 64}, f"has the SHA-256 {sha256}"),
                            ({"url": f"file:{store}/m", "sha256": sha256}, "is not an archive"), ({"url": f"file:{store}/none.tar"}, "none.tar"),
                            ({"url": f"file:{tmp_path}/elsewhere"}, "is below no address"), ({"url": "file:store/m"}, "is below no address")):
            assert text in control.load("d", **given).error, given
        repo.write(store / "net.onnx", b"none")
        assert "not a valid ONNX model" in control.load("d", url=f"file:{store}/net.onnx").error
        assert "failed to load 'd'" in control.load("d").error
        assert "d" not in {m["name"] for m in control.index() if m.get("state") == "READY"}
        repo.write(store / "m" / "1" / "model.onnx", onnxgen.adder(5))
        control.load("c").ok()
        assert control.answer("c") == ([6, 7], "1")
        adder(store, 7)
        control.load("a").ok()
        assert control.answer("a") == ([2, 3], "1")  # what was unpacked, until the address is given again
        control.load("a", url=f"file:{store}/a.tar.gz").ok()
        assert control.answer("a") == ([8, 9], "1")


def test_a_file_that_cannot_be_used_changes_nothing(start, tmp_path):
    """Neither what serves, nor what a load without an address takes."""
    store, temp = tmp_path / "store", tmp_path / "temp"
    temp.mkdir()
    (store / "a" / "1").mkdir(parents=True)
    for name, content in (("net.onnx", onnxgen.adder(1)), ("broken.onnx", b"none"), ("readme.xyz", b"none"), ("a/1/model.onnx", onnxgen.adder(3))):
        repo.write(store / name, content)
    with tarfile.open(store / "a.tar", "w") as t:
        t.add(store / "a", "a")
    server = start([], f"--allow-model-url=file:{store}/", mode="explicit", env={"TMPDIR": str(temp)})
    with Control(server) as control:
        def answer():
            return control.rest.infer("m", [("INPUT0", "INT32", [2, 1], [1, 2])]).ok().json()["outputs"][0]["data"]

        for name, k in (("net.onnx", 1), ("a.tar", 3), ("net.onnx", 1)):
            control.load("m", url=f"file:{store}/{name}").ok()
            for bad, text in (("readme.xyz", "does not say which backend"), ("broken.onnx", "not a valid ONNX model")):
                assert text in control.load("m", url=f"file:{store}/{bad}").error
                control.load("m").ok()
                assert answer() == [1 + k, 2 + k]
        repo.write(store / "net.onnx", onnxgen.adder(5))
        control.load("m").ok()
        assert answer() == [6, 7]
    server.stop()
    assert list(temp.glob("millrace-*")) == []


def test_s3(start, tmp_path):
    """A new object by the same name is taken when the address is given again."""
    with s3.storage() as storage:
        storage.client.create_bucket(Bucket="models")
        storage.put("models", "in/a.tar.gz", adder(tmp_path / "1", 1)[0])
        server = start([], "--allow-model-url=s3://models/in/", mode="explicit", env=storage.environment())
        with Control(server) as control:
            for k in (1, 2):
                storage.put("models", "in/a.tar.gz", adder(tmp_path / f"k{k}", k)[0])
                control.load("m", url="s3://models/in/a.tar.gz").ok()
                assert control.answer("m") == ([1 + k, 2 + k], "1")
            assert "is below no address" in control.load("n", url="s3://models/other/a.tar.gz").error
        server.stop()


def test_a_python_model_of_an_archive(explicit_web, web, tmp_path):
    """With what lies beside its folder."""
    code = (b"import os, numpy as np, triton_python_backend_utils as pb_utils\n"
            b"class TritonPythonModel:\n"
            b"    def initialize(self, args):\n"
            b"        self.k = int(open(os.path.join(os.path.dirname(__file__), '../../../assets/k')).read())\n"
            b"    def execute(self, requests):\n"
            b"        return [pb_utils.InferenceResponse([pb_utils.Tensor('OUTPUT0', r.inputs()[0].as_numpy() + np.int32(self.k))]) for r in requests]\n")
    pymodels.add(tmp_path / "b" / "models", "m", code)
    (tmp_path / "b" / "assets").mkdir()
    (tmp_path / "b" / "assets" / "k").write_text("4")
    with tarfile.open(tmp_path / "b.tar", "w") as t:
        for name in ("models", "assets"):
            t.add(tmp_path / "b" / name, name)
    web.files["/in/b.tar"] = (tmp_path / "b.tar").read_bytes()
    _, control = explicit_web(*pymodels.options())
    control.load("p", url=f"{web.url}/in/b.tar", sha256=hashlib.sha256(web.files["/in/b.tar"]).hexdigest()).ok()
    assert control.answer("p") == ([5, 6], "1")


@pytest.mark.more
def test_a_model_of_mlserver(explicit_web, web, tmp_path):
    """By another name than its settings say."""
    pymodels.add_mlserver(tmp_path / "net", "runtimes.Sum", name="net", parameters={"version": "v1"})
    with tarfile.open(tmp_path / "net.tar", "w") as t:
        t.add(tmp_path / "net", "net")
    web.files["/in/net.tar"] = (tmp_path / "net.tar").read_bytes()
    _, control = explicit_web(*pymodels.options(pymodels.MLSERVER))
    control.load("other", url=f"{web.url}/in/net.tar", sha256=hashlib.sha256(web.files["/in/net.tar"]).hexdigest()).ok()
    answer = control.rest.infer("other", [("rows", "FP32", [2, 2], [1, 2, 3, 4])]).ok().json()
    assert (answer["model_name"], answer["outputs"][0]["data"]) == ("other", [3, 7])


def test_a_slow_download_delays_no_other_load(explicit_web, web, models, tmp_path):
    """And ends with an unload."""
    content, sha256 = adder(tmp_path / "a", 1)
    repo.add(models, "mine")
    server, control = explicit_web()
    with web.held("/in/slow.tar.gz"):
        waiting = GrpcControl(server).begin_load("m", url=f"{web.url}/in/slow.tar.gz", sha256=sha256)
        wait.until(lambda: "/in/slow.tar.gz" in web.asked, "the download to begin")
        control.load("mine").ok()
        control.unload("m").ok()
        assert waiting.code().name == "CANCELLED"
        web.files["/in/a.tar.gz"] = content
        control.load("m", url=f"{web.url}/in/a.tar.gz", sha256=sha256).ok()
        assert control.answer("m") == ([2, 3], "1")
