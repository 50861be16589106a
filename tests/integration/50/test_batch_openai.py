"""`millrace batch run --api`: tables through servers of OpenAI's API."""
import contextlib
import csv
import json
import os
import socket
import sqlite3
import subprocess
import time

import numpy
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest

from lib import wait
from lib.batch import dead, environment
from lib.services.openai import MODEL, WIDTH, Host, hosts, vector
from lib.server import BIN


def table(folder, rows):
    (folder / "in.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))


def command(folder, addresses, *args):
    return [str(BIN), "batch", "run", "-i", str(folder / "in.jsonl"), "-m", MODEL, "--hosts", ",".join(addresses), "-o",
            str(folder / "out"), *([] if "--output-format" in args else ["--output-format", "jsonl"]), *map(str, args)]


def run(folder, addresses, *args, code=0, env=()):
    done = subprocess.run(command(folder, addresses, *args), capture_output=True, text=True,
                          env={**environment(), **dict(env)}, timeout=wait.PATIENCE)
    assert done.returncode == code, f"{done.returncode}: {done.stdout[-2000:]}{done.stderr[-9000:]}"
    return done


def results(folder):
    return [json.loads(line) for f in (folder / "out/parts").iterdir() for line in f.read_text().splitlines()]


def by_id(folder):
    rows = results(folder)
    found = {r["id"]: r for r in rows}
    assert len(found) == len(rows)
    return found


ROWS = [{"id": i, "text": f'row {i} "quoted"', "score": i / 2, "tags": ["a", f"t{i}"]} for i in range(200)]


def test_chat(tmp_path):
    table(tmp_path, ROWS)
    with hosts(Host, Host) as (addresses, made):
        run(tmp_path, [addresses[0], f"http://{addresses[1]}/v1"], "--api", "chat", "--system", "You are {{id}}.", "--prompt",
            "Say \\{{ {{ text }} of {{score}} and {{tags}} }}", "--param", "temperature=0", "--param", "max_tokens=64",
            "--keep", "id")
        seen = made[0].seen + made[1].seen
    found = by_id(tmp_path)
    for r in ROWS:
        score = r["score"] if r["score"] % 1 else int(r["score"])
        text = f"Say {{{{ {r['text']} of {score} and {json.dumps(r['tags'], separators=(',', ':'))} }}}}"
        assert found[r["id"]] == {"id": r["id"], "text": "echo: " + text, "finish_reason": "stop", "model": MODEL,
                                  "prompt_tokens": len(text.split()) + 3, "completion_tokens": len(text.split()) + 1}
    path, request = seen[0]
    assert path == "/v1/chat/completions"
    assert request.keys() == {"model", "messages", "temperature", "max_tokens"} and request["max_tokens"] == 64
    assert request["messages"][0]["role"] == "system" and all(made[i].seen for i in (0, 1))


def test_messages_column(tmp_path):
    """As it is, whatever a message holds; a row without messages is a dead letter."""
    image = {"type": "image_url", "image_url": {"url": "data:,x"}, "n": 1.50}
    rows = [{"id": 0, "m": [{"role": "user", "content": "one"}]},
            {"id": 1, "m": [{"role": "user", "content": "a"}, {"role": "user", "content": "two", "parts": [image]}]},
            {"id": 2, "m": []}, {"id": 3, "m": None}, {"id": 4, "m": "text"},
            {"id": 5, "m": json.dumps([{"role": "user", "content": "as text"}])}]
    table(tmp_path, rows)
    with hosts(Host) as (addresses, made):
        run(tmp_path, addresses, "--api", "chat", "--messages", "m", "--keep", "id", "--outputs", "text", "--output-column",
            "said", "--max-dead-percent", 100)
        sent = [r["messages"] for _, r in made[0].seen]
    assert {k: r["said"] for k, r in by_id(tmp_path).items()} == {0: "echo: one", 1: "echo: two", 5: "echo: as text"}
    assert rows[1]["m"] in sent
    assert {d["row"]: d["kind"] for d in dead(tmp_path)} == {2: "row", 3: "row", 4: "row"}
    assert all("'m'" in d["cause"] for d in dead(tmp_path))


@pytest.mark.parametrize("kind", ["csv", "sqlite"])
def test_messages_of_texts(tmp_path, kind):
    """Any text may be there: what is no JSON is a string in its letter, which can be tried again."""
    rows = [(0, "hello"), (1, json.dumps([{"role": "user", "content": "one"}], indent=1))]
    if kind == "csv":
        with open(tmp_path / "in.csv", "w") as f:
            csv.writer(f).writerows([("id", "m"), *rows])
        source = ["-i", tmp_path / "in.csv"]
    else:
        with contextlib.closing(sqlite3.connect(tmp_path / "in.db")) as db, db:
            db.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, m TEXT)")
            db.executemany("INSERT INTO t VALUES (?, ?)", rows)
        source = ["-i", f"sqlite:{tmp_path}/in.db", "--table", "t"]
    with hosts(Host) as (addresses, made):
        for verb in ("run", "retry-dlq"):
            subprocess.run([BIN, "batch", verb, *source, "-m", MODEL, "--hosts", addresses[0], "-o", tmp_path / "out", "--output-format",
                            "jsonl", "--api", "chat", "--messages", "m", "--keep", "id,m", "--outputs", "text", "--max-dead-percent",
                            "100"], check=True, env=environment(), timeout=wait.PATIENCE)
            assert [d["values"]["m"] for d in dead(tmp_path)] == ["hello"]
        assert len(made[0].seen) == 1
    assert results(tmp_path) == [{"id": 1, "m": rows[1][1], "text": "echo: one"}]


@pytest.mark.parametrize("args,word", [
    (["--prompt", "x {{nix}}"], "nix"), (["--prompt", "x {{text"], "{{text"), (["--prompt", "{{}}"], "names no column"),
    (["--messages", "nix"], "nix"), ([], "--prompt"), (["--prompt", "x", "--messages", "text"], "--prompt"),
    (["--prompt", "x", "--param", "stop=a"], "stop"), (["--prompt", "x", "--param", "stream=true"], "stream"),
    (["--prompt", "x", "--outputs", "embedding"], "finish_reason"), (["--prompt", "x", "--api-key-env", "NIX"], "NIX"),
    (["--prompt", "x", "--local", "repo"], "--local"), (["--prompt", "x", "--map", "a=b"], "--map"),
    (["--prompt", "x", "--prompt-file", "/dev/null"], "both"), (["--prompt-file", "/nix"], "/nix"),
])
def test_what_is_wrong_is_told_before_the_first_row(tmp_path, args, word):
    table(tmp_path, ROWS[:2])
    with hosts(Host) as (addresses, made):
        done = subprocess.run(command(tmp_path, addresses, "--api", "chat", *args), capture_output=True, text=True,
                              env=environment(), timeout=wait.PATIENCE)
        assert not made[0].seen
    assert done.returncode in (1, 2) and word in done.stderr


def test_a_column_that_is_not_there(tmp_path):
    """All columns are named, also those that would not be read."""
    pq.write_table(pa.table({"id": [0], "text": ["a"], "other": ["b"]}), tmp_path / "in.parquet")
    with hosts(Host) as (addresses, _):
        said = [str(tmp_path / "in.parquet") if w.endswith("in.jsonl") else w for w in
                command(tmp_path, addresses, "--api", "chat", "--prompt", "{{text}} {{nix}}")]
        done = subprocess.run(said, capture_output=True, text=True, env=environment(), timeout=wait.PATIENCE)
    assert done.returncode == 1 and "it has id, text, other" in done.stderr


def test_nulls(tmp_path):
    table(tmp_path, [{"id": 0, "text": "a"}, {"id": 1, "text": None}, {"id": 2}])
    with hosts(Host) as (addresses, _):
        run(tmp_path, addresses, "--api", "chat", "--prompt", "<{{text}}>", "--keep", "id", "--max-dead-percent", 100)
        assert sorted(by_id(tmp_path)) == [0]
        assert all(d["kind"] == "row" and "'text' is null" in d["cause"] for d in dead(tmp_path))
        done = run(tmp_path, addresses, "--api", "chat", "--prompt", "<{{text}}>", "--keep", "id", "--null-text", "none", code=1)
        assert "null text" in done.stderr
    (tmp_path / "out").rename(tmp_path / "before")
    with hosts(Host) as (addresses, _):
        run(tmp_path, addresses, "--api", "chat", "--prompt", "<{{text}}>", "--keep", "id", "--null-text", "none")
    assert [r["text"] for r in sorted(results(tmp_path), key=lambda r: r["id"])] == ["echo: <a>", "echo: <none>", "echo: <none>"]


class Throttles(Host):
    def answer(self, number, request):
        if number % 5 == 0:
            self.send_response(429)
            self.send_header("Retry-After", "0")
            self.send_header("Content-Length", "0")
            self.end_headers()
        else:
            super().answer(number, request)


class Breaks(Host):
    """Fails now and then, each time in another way."""
    def answer(self, number, request):
        faults = {1: lambda: self.say(500, {"error": "crashed"}), 6: lambda: self.say(200, b'{"choices": [{'),
                  11: lambda: self.say(200, {"choices": []}), 16: lambda: self.say(200, {"choices": [
                      {"index": 0, "message": {"content": 5}}]}),
                  21: lambda: self.say(200, {"choices": [{"index": 1, "message": {"content": "x"}}]})}
        fault = faults.get(number % 25)
        fault() if fault else super().answer(number, request)


@pytest.mark.parametrize("handler", [Throttles, Breaks])
def test_bad_hosts(tmp_path, handler):
    table(tmp_path, ROWS)
    with hosts(Host, handler) as (addresses, _):
        run(tmp_path, addresses, "--api", "chat", "--prompt", "{{text}}", "--keep", "id")
    assert {k: r["text"] for k, r in by_id(tmp_path).items()} == {r["id"]: "echo: " + r["text"] for r in ROWS}


class Unwilling(Host):
    def answer(self, number, request):
        self.say(400, {"error": "not from me"})


def test_a_host_that_refuses_all(tmp_path):
    """What another one answers is no dead letter."""
    table(tmp_path, ROWS)
    with hosts(Unwilling, Host) as (addresses, _):
        done = run(tmp_path, addresses, "--api", "chat", "--prompt", "{{text}}", "--keep", "id")
    assert len(by_id(tmp_path)) == len(ROWS) and "batch.host_refuses" in done.stderr


class Other(Host):
    model = "other"


class Keyed(Host):
    """Quotes the key in what it refuses; causes and letters end within it."""
    key = "sk-secret-7"

    def answer(self, number, request):
        refusals = {7: f"{self.headers['Authorization']} may not say that", 8: "\0" + self.key, 9: "x" * 170 + self.key,
                    10: "x" * 4087 + self.key}
        row = int(request["messages"][0]["content"].split()[1])
        if row in refusals:
            self.say(400, refusals[row].encode())
        else:
            super().answer(number, request)


def test_a_host_without_the_model_gets_no_call(tmp_path):
    table(tmp_path, ROWS[:50])
    with hosts(Host, Other) as (addresses, made):
        run(tmp_path, addresses, "--api", "chat", "--prompt", "{{text}}", "--keep", "id")
        assert len(by_id(tmp_path)) == 50 and not made[1].seen
    with hosts(Other) as (addresses, _):
        done = subprocess.run(command(tmp_path, addresses, "--api", "chat", "--prompt", "x", "--plan", "--max-outage", "5s"),
                              capture_output=True, text=True, env=environment(), timeout=wait.PATIENCE)
        assert done.returncode == 1 and "it serves 'other', not 'tiny'" in done.stderr


def test_key(tmp_path):
    """From the environment or a file, and nowhere else afterwards; a wrong one cordons the host."""
    table(tmp_path, ROWS[:20])
    (tmp_path / "key").write_text("sk-secret-7\n")
    with hosts(Keyed) as (addresses, _):
        done = run(tmp_path, addresses, "--api", "chat", "--prompt", "{{text}}", "--keep", "id", "--api-key-file",
                   tmp_path / "key", "--json")
        assert len(by_id(tmp_path)) == 16
        told = {d["row"]: d for d in dead(tmp_path)}
        assert "may not say that" in told[7]["answer"]["text"] and told[9]["cause"].endswith("x**********")
        assert told[8]["answer"]["text"] == "\0" + "*" * 11 and told[10]["answer"]["text"].endswith("x*********")
        (tmp_path / "out").rename(tmp_path / "before")
        wrong = run(tmp_path, addresses, "--api", "chat", "--prompt", "{{text}}", "--api-key-env", "KEY", "--max-outage",
                    "5s", env={"KEY": "sk-wrong-9"}, code=1)
    assert "401" in wrong.stderr
    texts = [done.stdout, done.stderr, wrong.stderr, *(p.read_text() for p in (tmp_path / "before").rglob("*") if p.is_file())]
    assert not any("sk-secret" in t or "sk-wrong" in t for t in texts)


def committed(folder):
    """Keys in the files that count."""
    log = folder / "out/manifest.log"
    counted = log.read_text(errors="replace") if log.exists() else ""
    return {json.loads(line)["id"] for f in (folder / "out/parts").glob("*") if f.name in counted
            for line in f.read_text().splitlines()}


class Stops(Host):
    """After `most` requests, until it may go on."""
    most = 10**9

    def answer(self, number, request):
        if number > self.most:
            self.gate.wait(wait.PATIENCE)
        with contextlib.suppress(OSError):
            super().answer(number, request)


def kill_when(job, host, most, is_time):
    """Kills it when the host has received that many requests."""
    host.most = len(host.seen) + most
    host.gate.clear()
    running = job()
    try:
        wait.until(lambda: (len(host.seen) > host.most and is_time()) or running.poll() is not None)
        assert running.poll() is None
    finally:
        running.kill()
        running.wait()
        host.most = 10**9
        host.gate.set()


def test_killed_and_resumed(tmp_path):
    """What was committed is not asked for again; another prompt is another job."""
    rows = [{"id": i, "text": f"row {i}"} for i in range(600)]
    table(tmp_path, rows)
    args = ["--api", "chat", "--prompt", "{{text}}", "--keep", "id", "--part-bytes", "1", "--max-in-flight-per-host", "4"]
    sure = set()
    with hosts(Stops) as (addresses, made):
        for _ in range(2):
            before = set(sure)
            kill_when(lambda: subprocess.Popen(command(tmp_path, addresses, *args), stderr=subprocess.DEVNULL, env=environment()),
                      made[0], 150, lambda: len(committed(tmp_path)) > len(before) + 64)
            sure = committed(tmp_path)
        asked = len(made[0].seen)
        other = run(tmp_path, addresses, "--api", "chat", "--prompt", "Now {{text}}", "--keep", "id", code=1)
        assert "prompt" in other.stderr
        run(tmp_path, addresses, *args)
        again = {r["messages"][0]["content"] for _, r in made[0].seen[asked:]}
    assert sorted(by_id(tmp_path)) == list(range(600)) and len(sure) > 128 and again
    assert not again & {f"row {i}" for i in sure}


class Shuffles(Host):
    """Answers out of order, found by their index."""
    def order(self, rows):
        return rows[::-1]


class Floats(Host):
    takes_base64 = False


class Shorter(Host):
    width = WIDTH - 1


class Lies(Host):
    """Vectors that must not get into a table, each time of another kind."""
    def vector(self, text):
        kinds = [lambda v: v[:-1], lambda v: numpy.full_like(v, numpy.nan), lambda v: v]
        return kinds[len(self.seen) % 3](super().vector(text)) if len(self.seen) > 1 else super().vector(text)

    def order(self, rows):
        return rows[:-1] if len(rows) > 1 and len(self.seen) % 2 else rows


@pytest.mark.parametrize("handler", [Shuffles, Floats, Shorter, Lies])
def test_embeddings(tmp_path, handler):
    table(tmp_path, ROWS)
    with hosts(Host, handler) as (addresses, made):
        run(tmp_path, addresses, "--api", "embeddings", "--prompt", "about {{text}}", "--keep", "id", "--batch-rows", "16",
            "--output-format", "parquet", "--param", "user=\"me\"")
        calls = [[len(r["input"]) for _, r in h.seen] for h in made]
        assert made[0].seen[0][1].keys() == {"model", "input", "user", "encoding_format"}
    t = pyarrow.dataset.dataset(str(tmp_path / "out/parts")).to_table()
    assert t.schema.names == ["id", "embedding"] and t.schema.field("embedding").type.value_type == pa.float32()
    assert sorted(t["id"].to_pylist()) == list(range(200))
    width = len(t["embedding"][0])  # of the host that answered first
    for i, v in zip(t["id"].to_pylist(), t["embedding"].to_pylist()):
        assert numpy.array_equal(numpy.float32(v), vector(f"about {ROWS[i]['text']}")[:width])
    assert width == WIDTH or handler is Shorter
    assert max(rows for host in calls for rows in host) == 16
    assert handler is not Shorter or min(map(len, calls)) <= 1, "a host of another width is not asked again"


def test_completions(tmp_path):
    table(tmp_path, ROWS)
    with hosts(Shuffles) as (addresses, made):
        run(tmp_path, addresses, "--api", "completions", "--prompt", "{{text}}", "--keep", "id", "--batch-rows", "16")
        assert {p for p, _ in made[0].seen} == {"/v1/completions"} and len(made[0].seen) < 30
    assert by_id(tmp_path) == {r["id"]: {"id": r["id"], "text": f"after {r['text']}", "finish_reason": "stop", "model": MODEL}
                               for r in ROWS}


class Moody(Host):
    def content(self, request):
        text = request["messages"][-1]["content"]
        return text, {"1": "length", "2": "content_filter"}.get(text[-1], "stop")

    def chat(self, request, text, reason, **message):
        refusal = {"content": None, "refusal": "I will not."} if text.endswith("3") else {}
        super().chat(request, text, reason, **message, **refusal)


def test_answers_that_are_none(tmp_path):
    table(tmp_path, [{"id": i, "text": f"row {i}"} for i in range(5)])
    args = ["--api", "chat", "--prompt", "{{text}}", "--keep", "id", "--max-dead-percent", "100"]
    with hosts(Moody) as (addresses, made):
        run(tmp_path, addresses, *args)
        assert {r["id"]: r["finish_reason"] for r in results(tmp_path)} == {0: "stop", 1: "length", 4: "stop"}
        kinds = {d["row"]: (d["kind"], d["answer"]["text"], d["host"]) for d in dead(tmp_path)}
        assert kinds == {2: ("filtered", "row 2", addresses[0]), 3: ("refused", "I will not.", addresses[0])}
        assert len(made[0].seen) == 5  # nothing of that is asked for again
        (tmp_path / "out").rename(tmp_path / "before")
        run(tmp_path, addresses, *args, "--on-length", "dead")
    assert {d["row"]: d["kind"] for d in dead(tmp_path)} == {1: "length", 2: "filtered", 3: "refused"}


def test_no_tokens_are_a_number(tmp_path):
    class Counts(Host):
        def usage(self, prompt, completion=0):
            return {"completion_tokens": 0, "prompt_tokens": None} if prompt == 1 else {}
    table(tmp_path, [{"id": 1, "text": "one"}, {"id": 2, "text": "two words"}])
    with hosts(Counts) as (addresses, _):
        run(tmp_path, addresses, "--api", "chat", "--prompt", "{{text}}", "--keep", "id", "--json")
    assert {i: (r["prompt_tokens"], r["completion_tokens"]) for i, r in by_id(tmp_path).items()} == {1: (None, 0), 2: (None, None)}
    assert json.loads((tmp_path / "out/report.json").read_text())["this_start"]["completion_tokens"] == 0


def test_map(tmp_path):
    """A filter as well, with the digits and the texts that lines have."""
    lines = '{"id":10000000000000000001,"t":"a \\u00e4"}\n{"id":2,"t":["x",1.50]}\n'
    with hosts(Host) as (addresses, _):
        done = subprocess.run([str(BIN), "map", "-m", MODEL, "--hosts", addresses[0], "--api", "chat", "--prompt", "{{id}} {{t}}",
                               "--keep", "id", "--outputs", "text"], input=lines, capture_output=True, text=True,
                              env=environment(), timeout=wait.PATIENCE)
    assert done.returncode == 0, done.stderr
    assert done.stdout == '{"id":10000000000000000001,"text":"echo: 10000000000000000001 a ä"}\n' \
                          '{"id":2,"text":"echo: 2 [\\"x\\",1.50]"}\n'


SCHEMA = {"type": "object", "additionalProperties": False, "required": ["label", "score", "tags"], "properties": {
    "label": {"type": "string", "enum": ["good", "bad"]}, "score": {"type": "integer", "minimum": 0, "maximum": 9},
    "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 3}, "sure": {"type": ["number", "null"]},
    "is_new": {"type": "boolean"}, "more": {"type": "object"}}}


class Coloured(Host):
    def answer(self, number, request):
        self.say(400, "\x1b[31mred".encode())


@pytest.mark.parametrize("policy", ["fail", "skip"])
def test_map_tells_no_codes_to_the_terminal(policy):
    with hosts(Coloured) as (addresses, _):
        done = subprocess.run([str(BIN), "map", "-m", MODEL, "--hosts", addresses[0], "--api", "chat", "--prompt", "{{id}}", "--dead",
                               policy],
                              input='{"id":1}\n', capture_output=True, text=True, env=environment(), timeout=wait.PATIENCE)
    assert "red" in done.stderr and "\x1b" not in done.stderr


class Learns(Host):
    """What does not fit the schema is right when it is asked for again, if it ever is."""
    def content(self, request):
        asked = [m["content"] for m in request["messages"] if m["role"] == "user"]
        row, again = int(asked[0].split()[-1]), len(asked) > 1
        good = {"label": "good", "score": row % 10, "tags": [f"t{row}", "ä"], "sure": None if row % 2 else 0.5, "is_new": True,
                "more": {"k": [1.50]}}
        wrong = {1: good | {"label": "neither"}, 2: good | {"score": 10}, 3: good | {"score": "5"}, 4: good | {"new": 1},
                 5: {k: v for k, v in good.items() if k != "tags"}, 6: good | {"tags": ["a"] * 4}, 7: "good"}
        text = json.dumps(wrong[row % 10] if row % 10 in wrong and not (again and row < 100) else good)
        if row % 10 == 8 and not again:
            text = "Sure! " + text
        return text if row % 10 != 9 else json.dumps({k: good[k] for k in SCHEMA["required"]}), "stop"


def test_schema(tmp_path):
    (tmp_path / "schema.json").write_text(json.dumps(SCHEMA))
    rows = [{"id": i} for i in [*range(50), *range(100, 110)]]
    table(tmp_path, rows)
    with hosts(Learns) as (addresses, made):
        run(tmp_path, addresses, "--api", "chat", "--prompt", "row {{id}}", "--keep", "id", "--max-dead-percent", "100",
            "--response-schema", tmp_path / "schema.json", "--output-format", "parquet")
        seen = [r for _, r in made[0].seen]
    t = pyarrow.dataset.dataset(str(tmp_path / "out/parts")).to_table()
    assert t.schema.names == ["id", "label", "score", "tags", "sure", "is_new", "more", "finish_reason", "prompt_tokens",
                              "completion_tokens", "model"]
    assert [t.schema.field(i).type for i in (1, 2, 4, 5, 6)] == [pa.string(), pa.int64(), pa.float64(), pa.bool_(), pa.string()]
    found = {r["id"]: r for r in t.to_pylist()}
    assert sorted(found) == [*range(50), 100, 108, 109]
    assert found[2] | {"prompt_tokens": 0, "completion_tokens": 0} == {
        "id": 2, "label": "good", "score": 2, "tags": ["t2", "ä"], "sure": 0.5, "is_new": True, "more": '{"k": [1.5]}',
        "finish_reason": "stop", "prompt_tokens": 0, "completion_tokens": 0, "model": MODEL}
    assert found[9]["is_new"] is None and found[9]["tags"] == ["t9", "ä"]
    letters = {d["row"]: d for d in dead(tmp_path)}
    assert sorted(letters) == list(range(51, 58)) and {d["kind"] for d in letters.values()} == {"schema"}
    assert "$.label" in letters[51]["cause"] and "at most 9" in letters[52]["cause"] and "integer" in letters[53]["cause"]
    assert "$.new" in letters[54]["cause"] and "'tags'" in letters[55]["cause"] and "4 items" in letters[56]["cause"]
    assert json.loads(letters[52]["answer"]["text"])["score"] == 10 and letters[52]["attempts"] == 2
    assert seen[0]["response_format"] == {"type": "json_schema", "json_schema": {"name": "answer", "strict": True, "schema": SCHEMA}}
    again = next(r for r in seen if len(r["messages"]) > 1)
    assert [m["role"] for m in again["messages"]] == ["user", "assistant", "user"] and "$" in again["messages"][2]["content"]


@pytest.mark.parametrize("schema,word", [('{"type": "object", "multipleOf": 2}', "multipleOf"), ('{"type": "objekt"}', "objekt"),
                                         ('{"properties": {"a": {"pattern": "\\\\d+"}}}', "pattern"), ("[", "response-schema"),
                                         ('{"$ref": "#/$defs/no"}', "#/$defs/no")])
def test_bad_schema(tmp_path, schema, word):
    (tmp_path / "schema.json").write_text(schema)
    table(tmp_path, ROWS[:2])
    done = subprocess.run(command(tmp_path, ["127.0.0.1:1"], "--api", "chat", "--prompt", "x", "--response-schema",
                                  tmp_path / "schema.json"), capture_output=True, text=True, env=environment(), timeout=wait.PATIENCE)
    assert done.returncode in (1, 2) and word in done.stderr


class Spreads(Host):
    def content(self, request):
        text = json.dumps({"a": {"b": [1, {"c": "x\ny"}]}}, indent=1)
        return text if request["messages"][0]["content"] == "0" else text.replace("\n", "\r\n"), "stop"


def test_an_answer_over_several_lines(tmp_path):
    """Is one line of the results."""
    (tmp_path / "schema.json").write_text('{"type": "object", "properties": {"a": {"type": "object"}}}')
    table(tmp_path, [{"id": 0}, {"id": 1}])
    with hosts(Spreads) as (addresses, _):
        run(tmp_path, addresses, "--api", "chat", "--prompt", "{{id}}", "--keep", "id", "--outputs", "a", "--response-schema",
            tmp_path / "schema.json")
    assert not any(b"\r" in f.read_bytes() for f in (tmp_path / "out/parts").iterdir())
    assert by_id(tmp_path) == {i: {"id": i, "a": {"b": [1, {"c": "x\ny"}]}} for i in range(2)}


class Wordy(Host):
    """Ends only with room for 40 words, and row 1 never."""
    def content(self, request):
        ends = request["max_tokens"] >= 40 and not request["messages"][0]["content"].endswith("1")
        return f"{request['max_tokens']} words", "stop" if ends else "length"


def test_more_tokens(tmp_path):
    table(tmp_path, [{"id": i} for i in range(3)])
    with hosts(Wordy) as (addresses, made):
        run(tmp_path, addresses, "--api", "chat", "--prompt", "row {{id}}", "--keep", "id", "--max-dead-percent", "100",
            "--param", "max_tokens=10", "--on-length", "more")
        asked = sorted(r["max_tokens"] for _, r in made[0].seen)
    assert {r["id"]: r["text"] for r in results(tmp_path)} == {0: "40 words", 2: "40 words"}
    assert [(d["row"], d["kind"], d["attempts"]) for d in dead(tmp_path)] == [(1, "length", 4)]
    assert asked == [10] * 3 + [20] * 3 + [40] * 3 + [80]


def batch_file(folder, addresses, *args, code=0, verb="run"):
    done = subprocess.run([str(BIN), "batch", verb, "--api", "batch-file", "-i", str(folder / "in.jsonl"), "--output-file",
                           str(folder / "out.jsonl"), "--hosts", ",".join(addresses), *map(str, args)], capture_output=True,
                          text=True, env=environment(), timeout=wait.PATIENCE)
    assert done.returncode == code, done.stderr
    return done


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def request(key, url, **body):
    return {"custom_id": key, "method": "POST", "url": f"/v1/{url}", "body": {"model": MODEL, **body}}


class Refuses(Host):
    """Two models, one of which does not take everything; its JSON is spread over lines."""
    def answer(self, number, request):
        if "refuse" in str(request):
            self.say(400, {"error": {"message": "too long", "code": "context_length_exceeded"}})
        elif "latin" in str(request):
            self.say(400, b"zu gro\xdf")
        elif request["model"] == "spread":
            self.say(200, json.dumps({"id": "x", "n": [1.50]}, indent=1).encode())
        else:
            super().answer(number, request)


def test_batch_file(tmp_path):
    """Drop-in for what hosted batches and vLLM's run-batch take and give."""
    chats = [request(f"c{i}", "chat/completions", messages=[{"role": "user", "content": f"row {i}"}], x={"k": [1.50]})
             for i in range(150)]
    good = [*chats, request("e", "embeddings", input=["a", "b"]), request("s", "score", model="spread")]
    bad = [request("400", "completions", prompt=["refuse"]), request("u", "../../admin"), request("st", "completions", stream=True),
           request("g", "completions") | {"method": "GET"}, {"custom_id": "b", "method": "POST", "url": "/v1/completions", "body": 5},
           request("", "completions"), request("404", "nothing"), request("l", "completions", prompt=["latin"])]
    table(tmp_path, good + bad)
    with open(tmp_path / "in.jsonl", "a") as f:
        f.write('{"custom_id": "cut\n')
    with hosts(Refuses, Refuses) as (addresses, made):
        batch_file(tmp_path, addresses, "--error-file", tmp_path / "err.jsonl", "--max-dead-percent", "100")
        calls = len(made[0].seen) + len(made[1].seen)
        bodies = [r for h in made for _, r in h.seen]
        batch_file(tmp_path, addresses, "--max-dead-percent", "100")  # once more: no call, and one file for all
        assert len(made[0].seen) + len(made[1].seen) == calls
    assert (tmp_path / "out.jsonl.job/_SUCCESS").exists()
    errors = {e["custom_id"]: e for e in lines(tmp_path / "err.jsonl")}
    both = lines(tmp_path / "out.jsonl")
    assert len(both) == len(good) + len(bad) + 1
    found = {r["custom_id"]: r for r in both if r["error"] is None}
    assert found.keys() == {r["custom_id"] for r in good} and len({r["id"] for r in found.values()}) == len(good)
    for i in range(150):
        response = found[f"c{i}"]["response"]
        assert response["status_code"] == 200 and response["request_id"] == "chatcmpl-1"
        assert response["body"]["choices"][0]["message"]["content"] == f"echo: row {i}"
    assert found["s"]["response"]["body"] == {"id": "x", "n": [1.5]} and len(found["e"]["response"]["body"]["data"]) == 2
    assert errors.keys() == {"400", "404", "u", "st", "g", "b", "l", "", None} and errors["404"]["response"]["status_code"] == 404
    assert errors["400"]["response"]["status_code"] == 400
    assert errors["400"]["response"]["body"]["error"]["code"] == "context_length_exceeded"
    assert errors["l"]["response"] == {"status_code": 400, "request_id": "", "body": "zu gro\ufffd"}
    assert errors["400"]["error"]["code"] == "rejected" and errors["u"]["response"] is None
    assert "/v1/" in errors["u"]["error"]["message"] and "stream" in errors["st"]["error"]["message"]
    assert all(r["body"] in bodies for r in good)


def test_batch_file_killed_and_resumed(tmp_path):
    requests = [request(f"c{i}", "chat/completions", messages=[{"role": "user", "content": f"row {i}"}]) for i in range(400)]
    table(tmp_path, requests)
    args = ["--part-bytes", "1", "--max-in-flight-per-host", "4"]
    with hosts(Stops) as (addresses, made):
        kill_when(lambda: subprocess.Popen([str(BIN), "batch", "run", "--api", "batch-file", "-i", str(tmp_path / "in.jsonl"),
                                            "--output-file", str(tmp_path / "out.jsonl"), "--hosts", addresses[0], *args],
                                           stderr=subprocess.DEVNULL, env=environment()),
                  made[0], 200, lambda: (tmp_path / "out.jsonl.job/manifest.log").read_text(errors="replace").count(".jsonl") > 8)
        assert not (tmp_path / "out.jsonl").exists()
        batch_file(tmp_path, addresses, *args)
        assert len(made[0].seen) < 400 + 16 * 8
    assert sorted(r["custom_id"] for r in lines(tmp_path / "out.jsonl")) == sorted(r["custom_id"] for r in requests)


@pytest.mark.parametrize("args,word", [(["--prompt", "x"], "--prompt"), (["--keep", "id"], "--keep"), ([], "custom_id")])
def test_what_is_no_batch_file(tmp_path, args, word):
    table(tmp_path, ROWS[:2])
    with hosts(Host) as (addresses, made):
        done = batch_file(tmp_path, addresses, *args, code=1)
        assert word in done.stderr and not made[0].seen


@pytest.mark.parametrize("column", ["custom_id", "method", "body"])
def test_a_batch_file_of_numbers(tmp_path, column):
    kinds = {"custom_id": "TEXT", "method": "TEXT", "url": "TEXT", "body": "TEXT"} | {column: "INTEGER"}
    with contextlib.closing(sqlite3.connect(tmp_path / "in.db")) as db, db:
        db.execute(f"CREATE TABLE t ({', '.join(' '.join(i) for i in kinds.items())})")
        db.execute("INSERT INTO t VALUES (1, 2, '/v1/completions', 3)")
    with hosts(Host) as (addresses, made):
        done = subprocess.run([BIN, "batch", "run", "--api", "batch-file", "-i", f"sqlite:{tmp_path}/in.db", "--table", "t", "-o",
                               tmp_path / "out", "--hosts", addresses[0]], capture_output=True, text=True, env=environment(),
                              timeout=wait.PATIENCE)
        assert not made[0].seen
    assert done.returncode == 1 and f"'{column}'" in done.stderr and "i64" in done.stderr.lower(), done.stderr


def test_no_result_file_of_a_part(tmp_path):
    """An unfinished job makes none, however it is asked."""
    table(tmp_path, [request(f"c{i}", "chat/completions", messages=[{"role": "user", "content": f"row {i}"}]) for i in range(100)])
    with hosts(Host) as (addresses, _):
        batch_file(tmp_path, addresses, "--max-total-tokens", "20", "--max-in-flight-per-host", "1", code=1)
        done = batch_file(tmp_path, addresses, verb="retry-dlq", code=1)
        assert "not finished" in done.stderr and not (tmp_path / "out.jsonl").exists()
        batch_file(tmp_path, addresses)
    assert len(lines(tmp_path / "out.jsonl")) == 100


def test_a_result_file_that_was_cut_short(tmp_path):
    """By a kill, under the process number of the next start: in a container all have the same."""
    table(tmp_path, [request("a", "completions", prompt=["a"])])
    with hosts(Host) as (addresses, _):
        subprocess.run(["sh", "-c", 'echo cut > out.jsonl.tmp-$$; exec "$@"', "sh", BIN, "batch", "run", "--api", "batch-file", "-i", "in.jsonl",
                        "--output-file", "out.jsonl", "--hosts", addresses[0]], check=True, env=environment(), cwd=tmp_path,
                       timeout=wait.PATIENCE)
    assert [r["custom_id"] for r in lines(tmp_path / "out.jsonl")] == ["a"] and not list(tmp_path.glob("*.tmp-*"))


@pytest.mark.parametrize("args,word", [
    (["--output-file", "in.jsonl"], "input"), (["--error-file", "./in.jsonl"], "input"), (["--error-file", "out.jsonl"], "same"),
    (["--output-file", "linked.jsonl"], "input"), (["--shard", "0/2"], "--shard"), (["--output-database", "sqlite:x.db"], "--output-database"),
    (["--compression", "zstd"], "--compression"), (["-i", ".", "--output-file", "new.jsonl"], "input"),
    (["-i", "*.jsonl", "--output-file", "new.jsonl"], "input")])
def test_files_of_results_that_cannot_be(tmp_path, args, word):
    """Reported before anything is done, and the input stays unchanged."""
    table(tmp_path, [request("a", "completions", prompt=["a"])])
    os.symlink("in.jsonl", tmp_path / "linked.jsonl")
    before = (tmp_path / "in.jsonl").read_bytes()
    with hosts(Host) as (addresses, made):
        done = subprocess.run([BIN, "batch", "run", "--api", "batch-file", "-i", "in.js*l", "--output-file", "out.jsonl", "--hosts",
                               addresses[0], *args], capture_output=True, text=True, env=environment(), cwd=tmp_path, timeout=wait.PATIENCE)
        assert not made[0].seen
    assert done.returncode == 2 and word in done.stderr, done.stderr
    assert (tmp_path / "in.jsonl").read_bytes() == before


class Counts(Host):
    """Takes a moment, in which others come; the most tokens that it had at a time."""
    now = peak = calls = 0

    def content(self, request):
        tokens = request["max_tokens"]
        kind = type(self)
        with self.server.lock:
            kind.now += tokens
            kind.calls += 1
            kind.peak = max(kind.peak, kind.now)
        time.sleep(0.005)
        with self.server.lock:
            kind.now -= tokens
        return "word " * (request["max_tokens"] if kind.calls < 400 else 1), "stop"


def test_tokens(tmp_path):
    """Never more at a host than it is lent, and all are counted."""
    table(tmp_path, ROWS)
    with hosts(Counts, Counts) as (addresses, made):
        done = run(tmp_path, addresses, "--api", "chat", "--prompt", "{{text}}", "--keep", "id", "--param", "max_tokens=100",
                   "--max-tokens-in-flight", "450", "--json")
        assert 100 < max(h.peak for h in made) <= 400
    report = json.loads(done.stdout)
    found = by_id(tmp_path)
    assert len(found) == 200
    prompt, completion = (sum(r[k] for r in found.values()) for k in ("prompt_tokens", "completion_tokens"))
    calls = sum(h["calls"] for h in report["hosts"])
    assert calls > 200 or (report["this_start"]["prompt_tokens"], report["this_start"]["completion_tokens"]) == (prompt, completion)
    for kind in ("prompt_tokens", "completion_tokens"):
        assert sum(h[kind] for h in report["hosts"]) == report["this_start"][kind] >= {"prompt_tokens": prompt}.get(kind, completion)


def test_budget_of_tokens(tmp_path):
    """A start ends when the limit is reached, with all paid answers; the next one continues."""
    table(tmp_path, ROWS)
    args = ["--api", "chat", "--prompt", "{{text}}", "--keep", "id", "--max-total-tokens", "500", "--max-in-flight-per-host", "4"]
    with hosts(Host) as (addresses, made):
        done = run(tmp_path, addresses, *args, code=1)
        assert "--max-total-tokens is 500" in done.stderr
        asked = len(made[0].seen)
        assert 500 // 7 <= asked <= 500 // 7 + 8
        for _ in range(10):
            if subprocess.run(command(tmp_path, addresses, *args), capture_output=True, env=environment()).returncode == 0:
                break
        assert len(made[0].seen) <= 200 + 10 * 64
    assert sorted(by_id(tmp_path)) == list(range(200))


def test_status_tells_tokens(tmp_path):
    table(tmp_path, ROWS)
    with hosts(Stops) as (addresses, made):
        made[0].most = 50
        job = subprocess.Popen(command(tmp_path, addresses, "--api", "chat", "--prompt", "{{text}}"), stderr=subprocess.DEVNULL,
                               env=environment())
        try:
            words = [str(BIN), "batch", "status", str(tmp_path / "out")]
            said = wait.until(lambda: len(made[0].seen) > 50 and (s := subprocess.run(words, capture_output=True, text=True).stdout)
                              and "tokens of prompts" in s and s)
            with socket.socket(socket.AF_UNIX) as c:
                c.connect(str(tmp_path / "out/control"))
                c.sendall(b"GET /metrics HTTP/1.1\r\nHost: job\r\nConnection: close\r\n\r\n")
                metrics = c.makefile().read()
        finally:
            job.kill()
            job.wait()
            made[0].gate.set()
    assert int(said.split(" tokens of prompts")[0].split("\n")[-1]) > 0, said
    tokens = float(metrics.split(f'completion_tokens_total{{host="{addresses[0]}"}} ')[1].split()[0])
    assert tokens > 0 and 'dead_letters_total{kind="schema"} 0' in metrics


class Hangs(Host):
    def answer(self, number, request):
        if number % 7 == 3:
            self.gate.wait(wait.PATIENCE)
        super().answer(number, request)


def test_a_host_that_hangs(tmp_path):
    table(tmp_path, ROWS[:60])
    with hosts(Host, Hangs) as (addresses, made):
        try:
            run(tmp_path, addresses, "--api", "chat", "--prompt", "{{text}}", "--keep", "id", "--timeout", "1s")
        finally:
            made[1].gate.set()
    assert {k: r["text"] for k, r in by_id(tmp_path).items()} == {r["id"]: "echo: " + r["text"] for r in ROWS[:60]}
