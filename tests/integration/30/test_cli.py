"""The commands as a user types them, and the demonstration."""
import json
import re
import subprocess

import numpy as np
import pytest

from lib import repo, wait
from lib.server import BIN, clean_environment
from lib.services import odd

DEMO = repo.TOP / "examples" / "demo" / "run"
DUCKDB = repo.TOP / "build" / "deps" / "duckdb" / "lib" / "libduckdb.so"


def millrace(*args, stdin="", **kw):
    done = subprocess.run([BIN, *map(str, args)], capture_output=True, text=True, timeout=wait.PATIENCE, input=stdin, env=clean_environment(), **kw)
    return done.returncode, done.stdout, done.stderr


def run_demo(*args, **env):
    return subprocess.run([DEMO, *args], capture_output=True, text=True, timeout=4 * wait.PATIENCE, stdin=subprocess.DEVNULL,
                          env=clean_environment({"MR_BIN": str(BIN), **env}))


@pytest.fixture(params=["rest", "binary", "grpc"])
def target(server, request):
    return ["--protocol", request.param, "--url", server.url("grpc" if request.param == "grpc" else "http")]


def test_numpy_files(server, target, tmp_path):
    """What numpy writes goes in, and what comes out numpy reads."""
    a = np.asfortranarray(np.arange(32, dtype=">i4").reshape(2, 16))
    np.save(tmp_path / "a.npy", a)
    np.save(tmp_path / "b.npy", np.ones((2, 16), np.int64))  # made the model's type
    code, out, err = millrace("infer", "-m", "simple", *target, "-i", f"INPUT0=@{tmp_path}/a.npy", "-i", f"INPUT1=@{tmp_path}/b.npy", "--to", tmp_path)
    assert (code, out, err) == (0, "", "")
    assert (np.load(tmp_path / "OUTPUT0.npy") == a + 1).all()
    assert (np.load(tmp_path / "OUTPUT1.npy") == a - 1).all()


def test_rows_from_standard_input(server, target):
    rows = "\n".join(json.dumps({"INPUT0": [i] * 16, "INPUT1": [1] * 16}) for i in range(4))
    code, out, _ = millrace("infer", "-m", "simple", *target, "--json", "-", stdin=rows)
    answer = json.loads(out)
    assert code == 0 and answer["outputs"][0]["shape"] == [4, 16]
    assert answer["outputs"][0]["data"] == [i + 1 for i in range(4) for _ in range(16)]


@pytest.mark.parametrize("rows,line", [(({"INPUT0": 1}, {"INPUT1": 2}), 2), (({"INPUT0": 1, "INPUT1": 1}, {"INPUT0": 2}, {"INPUT1": 3}), 2)])
def test_rows_without_one_of_the_values(server, target, rows, line):
    """Values of two rows are no row."""
    lines = "\n".join(json.dumps({k: [v] * 16 for k, v in row.items()}) for row in rows)
    code, out, err = millrace("infer", "-m", "simple", *target, "-", stdin=lines)
    assert (code, out) == (2, "") and f"standard input line {line}: " in err and "one value for each input" in err


def test_a_whole_request_and_further_inputs(server, target):
    whole = json.dumps({"inputs": [{"name": name, "datatype": "INT32", "shape": [1, 16], "data": [1] * 16} for name in ("INPUT0", "INPUT1")]})
    assert millrace("infer", "-m", "simple", *target, "-", stdin=whole)[0] == 0
    code, out, err = millrace("infer", "-m", "simple", *target, "-i", f"INPUT1={[2] * 16}", "-", stdin=whole)
    assert (code, out) == (2, "") and "-i goes with rows" in err, err


def test_errors_have_their_exit_codes(server, target):
    assert millrace("infer", "-m", "nowhere", *target, "-i", "x=1")[0] == 1
    assert millrace("infer", "-m", "simple", *target, "-i", "INPUT0=[1]")[0] == 2
    code, out, err = millrace("infer", "-m", "simple", *target)
    assert (code, out) == (2, "") and "no inputs" in err


def test_socket_file(models, start, tmp_path):
    repo.add(models, "m")
    path = tmp_path / "s"
    start(models, f"--http-address=unix:{path}")
    code, out, err = millrace("infer", "-m", "m", "-u", f"unix:{path}", "-i", "INPUT0=[7]")
    assert code == 0, err
    assert out.split("\t")[3] == "[7]\n"


def test_nobody_there(tmp_path):
    for command in (["infer", "-m", "m", "-i", "x=1"], ["model", "list"]):
        code, _, err = millrace(*command, "-u", f"unix:{tmp_path}/none")
        assert code == 1 and f"cannot connect to unix:{tmp_path}/none: No such file or directory" in err


@pytest.mark.parametrize("words", [["model", "load", "m"], ["model", "unload", "m"], ["model", "label", "m", "a", "1"],
                                   ["model", "rollback", "m"], ["model", "config", "m"], ["infer", "-m", "m", "-i", "x=1"]],
                         ids=lambda words: words[1])
@pytest.mark.parametrize("status", ["301 Moved Permanently", "304 Not Modified"])
def test_what_a_proxy_answers_is_no_success(words, status):
    body = b"" if status.startswith("304") else {"error": "it is elsewhere"}
    with odd.serving("http", [odd.http(body, status, "Location: /there\r\n")]) as host:
        code, out, err = millrace(*words, "-u", host.address)
    assert (code, out) == (1, "") and f"HTTP status {status[:3]}" in err


@pytest.mark.parametrize("words", [["model", "load", "m?x"], ["model", "unload", "a/b"], ["model", "config", "m#"], ["model", "stats", "a/b"],
                                   ["model", "config", "m", "--model-version", "1/2"], ["infer", "-m", "m?x", "-i", "x=1"],
                                   ["perf", "-m", "a/b"], ["perf", "-m", "m", "--model-version", "1?x"]])
def test_names_that_would_be_other_paths(words):
    """Nobody is asked: there is no server at that address."""
    code, out, err = millrace(*words, "-u", "127.0.0.1:1")
    assert out == "" and code in (1, 2) and "over REST names of models and versions have no '/', '?' or '#'" in err, err


def test_the_name_of_a_model_to_update(server):
    code, _, err = millrace("perf", "update", "-m", "simple", "--update", "m?x", "--pid", server.process.pid, "--rate", "10", "-u", server.url())
    assert code in (1, 2) and "over REST names of models" in err, err


def test_full_disk_is_told(server):
    with open("/dev/full", "w") as full:
        done = subprocess.run([BIN, "model", "list", "-u", server.url()], stdout=full, stderr=subprocess.PIPE, timeout=wait.PATIENCE, env=clean_environment())
    assert done.returncode == 1


def test_doctor():
    code, out, err = millrace("doctor", "--json")
    findings = json.loads(out)
    assert code == 0, out + err
    assert any(f["name"] == "backend" and "ONNX Runtime" in f["text"] for f in findings)
    assert all(f["level"] in ("info", "ok", "warning", "bad") for f in findings)


WHOLE = pytest.mark.release_only("it is a minute and a half of programs that other tests run under the sanitizers")


@WHOLE
def test_demo():
    done = run_demo()
    assert done.returncode == 0, done.stdout + done.stderr
    assert "All as it should be" in done.stdout and "\x1b" not in done.stdout
    folder_is_left_out = "the packages cannot be installed" in done.stdout  # that of MLServer
    assert done.stdout.count(" right\n") == (3 if folder_is_left_out else 4)
    assert "version 2 serves" in done.stdout and "drained" in done.stdout
    assert "requests failed until the server took the new version back" in done.stdout and "rolled_back" in done.stdout
    assert re.search(r"[1-9][0-9]* answered by the right model, [0-9]+ of them asked again when their server was gone, 0 failed", done.stdout)
    assert "none lost, none doubled" in done.stdout or "left out: DuckDB's library" in done.stdout


def test_demo_fails_when_something_is_wrong(tmp_path):
    """With a program that does not start, and with one whose answers are wrong."""
    assert run_demo(MR_BIN="/bin/false").returncode == 1
    wrong = tmp_path / "millrace"
    wrong.write_text(f'#!/bin/sh\nif [ "$1" = infer ]; then {BIN} "$@" | sed "s/class_./class_9/g"; else exec {BIN} "$@"; fi\n')
    wrong.chmod(0o755)
    done = run_demo(MR_BIN=str(wrong))
    assert done.returncode == 1 and "fewer than 85 % right" in done.stderr


@WHOLE
def test_demo_counts_failed_requests(tmp_path):
    """With a server of the mesh that takes no part in it."""
    alone = tmp_path / "millrace"
    alone.write_text(f"""#!/bin/bash
        for a; do [[ $a == --mesh=* ]] && a=--model-control-mode=explicit; args+=("$a"); done
        case "$*" in *--mesh-id=b*) exec {BIN} "${{args[@]}}";; esac
        exec {BIN} "$@"
        """)
    alone.chmod(0o755)
    done = run_demo("mesh", MR_BIN=str(alone))
    assert done.returncode == 1 and "not all requests were answered" in done.stderr, done.stdout + done.stderr
    assert re.search(r" [1-9][0-9]* failed\n", done.stdout)


@WHOLE
@pytest.mark.skipif(not DUCKDB.exists(), reason="tools/setup has not put DuckDB's library into build/deps")
def test_demo_finds_doubled_rows(tmp_path):
    """With a program whose second start of a job leaves a file of results twice."""
    wrong = tmp_path / "millrace"
    wrong.write_text(f"""#!/bin/sh
        for job; do :; done
        test -e "$job/parts" || exec {BIN} "$@"
        {BIN} "$@" && cp "$(find "$job/parts" -type f | head -n 1)" "$job/parts/again.parquet"
        """)
    wrong.chmod(0o755)
    done = run_demo("batch", MR_BIN=str(wrong), MILLRACE_DUCKDB=str(DUCKDB))
    assert done.returncode == 1 and "rows were lost, doubled" in done.stderr, done.stdout + done.stderr


def test_a_model_folder_is_no_repository(models, tmp_path):
    """Named with or without a configuration; the last model's folder is the commonest slip."""
    repo.add(models, "m", backend="identity")
    repo.add(models, "bare", text="", files={"1/model.onnx": b"x"})
    for name in ("m", "bare"):
        code, _, err = millrace("serve", f"--model-repository={models}/{name}", "--http-port=0", "--grpc-port=0", "--metrics-port=0")
        assert code == 1 and "model.not_a_repository" in err and f"{models}/{name}" in err and "the folder above it" in err
        code, _, err = millrace("serve", f"--model-repository={models}/{name}/1", f"--model-repository={models}", "--http-port=0", "--grpc-port=0",
                                "--metrics-port=0")
        assert code == 1 and f"{models}/{name}/1" in err and "a version of one model" in err and "the folder two above it" in err
    code, _, err = millrace("serve", f"--model-repository={models}", "--http-port=0", "--grpc-port=0", "--metrics-port=0")
    assert code == 1 and "model.not_a_repository" not in err  # for "bare", which is no model


def test_a_port_in_use_is_named_once(models, start):
    repo.add(models, "m")
    server = start(models)
    port = server.ports["http"]
    code, _, err = millrace("serve", f"--model-repository={models}", f"--http-port={port}", "--grpc-port=0", "--metrics-port=0")
    assert code == 1 and f"cannot listen on 127.0.0.1:{port}: Address already in use" in err
    assert err.count("cannot listen") == 1


def test_switches_that_are_on_show_how_to_end_that():
    code, out, _ = millrace("serve", "--help")
    assert code == 0 and "--exit-on-error[=false]" in out and "--reuse-http-port " in out and "(default false)" not in out


def test_rollback_and_labels_say_what_they_did(models, start):
    repo.add(models, "m", versions=(1, 2))
    url = ["-u", start(models, "--load-model=m", mode="explicit").url("http")]
    assert "m rolled back from version 2 to version 1 until its next load or unload" in millrace("model", "rollback", "m", *url)[1]
    assert "m version 1 is labelled 'stable'" in millrace("model", "label", "m", "stable", "1", *url)[1]
    assert "m has no label 'stable' any more" in millrace("model", "label", "m", "stable", *url)[1]
    assert json.loads(millrace("model", "unload", "m", "--json", *url)[1])["done"] == "unload"
