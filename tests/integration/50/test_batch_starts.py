"""How `millrace batch run` begins and ends for people: keys of results, results without rows, hints in errors, names of files and
columns, and what a refused start leaves."""
import json
import os

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lib import batch, wait

pytestmark = batch.pytestmark


def line(key, x=(1.0, 2.0, 3.0, 4.0), **more):
    return json.dumps({"id": key, "x": x, **more}) + "\n"


def put(folder, name, text):
    (folder / "in").mkdir(exist_ok=True)
    (folder / "in" / name).write_text(text)


def run(folder, *args, code=0, keep=("id",), handler=batch.Host, inputs=(), cwd=None, addresses=()):
    with batch.hosts(handler) as (own, _):
        command = batch.command(folder, [*own, *addresses], *args)
        at = command.index("--keep")
        command[at:at + 2] = [word for name in keep for word in ("--keep", name)]
        if inputs:
            at = command.index("-i")
            command[at:at + 2] = [word for path in inputs for word in ("-i", str(path))]
        done = batch.subprocess.run(command, capture_output=True, text=True, env=batch.environment(), timeout=wait.PATIENCE, cwd=cwd)
        assert done.returncode == code, f"{done.returncode}: {done.stderr[-3000:]}"
        return done.stderr


def success(folder):
    return (folder / "out/_SUCCESS").exists()


# ---- results without rows ----

COLUMNS = ["id", "y", "z"]


@pytest.mark.parametrize("name,text", [("a.csv", "id,x\n"), ("a.csv", ""), ("a.jsonl", "")])
def test_an_empty_table_has_results_with_columns(tmp_path, name, text):
    put(tmp_path, name, text)
    run(tmp_path)
    t = batch.results(tmp_path)
    assert t.column_names == COLUMNS and len(t) == 0 and t.schema.field("y").type == pa.float32() and success(tmp_path)
    run(tmp_path)  # finished, and reports it again
    assert len(batch.names(tmp_path)) == 1


@pytest.mark.parametrize("form", ["parquet", "csv", "arrow", "jsonl"])
@pytest.mark.parametrize("order", ["unordered", "physical"])
def test_results_of_rows_that_all_died_have_columns(tmp_path, form, order):
    put(tmp_path, "a.jsonl", "".join(line(k, [1.0]) for k in range(5)))
    args = ["--output-format", form, "--order", order, "--max-dead-percent", "100"]
    run(tmp_path, *args)
    (name,) = batch.names(tmp_path)
    part = tmp_path / "out/parts" / name
    assert len(batch.dead(tmp_path)) == 5 and success(tmp_path)
    if form == "csv":
        assert part.read_text() == "id,y,z\n"
    elif form == "jsonl":
        assert part.read_text() == ""
    else:
        t = pq.read_table(part) if form == "parquet" else pa.ipc.open_file(part).read_all()
        assert t.column_names == COLUMNS and len(t) == 0
    one = tmp_path / f"all.{form}"
    batch.subprocess.run([str(batch.BIN), "batch", "merge", str(tmp_path / "out"), "--output", str(one)], check=True, env=batch.environment())
    assert one.exists()
    run(tmp_path, *args, "--verify")
    assert batch.names(tmp_path) == [name]


def test_dead_letters_become_results_beside_the_empty_file(tmp_path):
    put(tmp_path, "a.jsonl", "".join(line(k, [1.0]) for k in range(5)))
    run(tmp_path, "--max-dead-percent", "100")
    put(tmp_path, "a.jsonl", "".join(line(k) for k in range(5)))
    with batch.hosts(batch.Host) as (addresses, _):
        command = batch.command(tmp_path, addresses, "--accept-changed-input", verb="retry-dlq")
        command[command.index("--keep") + 1] = "id"
        batch.subprocess.run(command, check=True, env=batch.environment(), timeout=wait.PATIENCE)
    assert sorted(batch.results(tmp_path)["id"].to_pylist()) == list(range(5)) and success(tmp_path)
    assert json.loads((tmp_path / "out/manifest.json").read_text())["rows"] == 5


# ---- keys ----

def test_without_keep_results_have_the_place_of_each_row(tmp_path):
    put(tmp_path, "a.jsonl", line(5) + line(6))
    put(tmp_path, "b.jsonl", line(7))
    said = run(tmp_path, keep=())
    t = batch.results(tmp_path)
    assert t.column_names == ["filename", "file_row_number", "y", "z"] and "batch.no_keep" in said and "--keep" in said
    rows = {(os.path.basename(f), n): z[0] for f, n, z in zip(*(t[c].to_pylist() for c in ("filename", "file_row_number", "z")))}
    assert rows == {("a.jsonl", 0): 50, ("a.jsonl", 1): 60, ("b.jsonl", 0): 70}


def test_keep_nothing(tmp_path):
    put(tmp_path, "a.jsonl", line(5))
    said = run(tmp_path, keep=("",))
    assert batch.results(tmp_path).column_names == ["y", "z"] and "no_keep" not in said


def test_names_with_commas(tmp_path):
    put(tmp_path, "a.jsonl", line(5, **{"a,b": 1, "c,": 2, "d\\": 3}))
    run(tmp_path, keep=("id,a\\,b,c\\,,d\\",))
    assert batch.results(tmp_path).column_names == ["id", "a,b", "c,", "d\\", "y", "z"]
    assert batch.results(tmp_path).to_pylist()[0]["a,b"] == 1


@pytest.mark.parametrize("end", ["jsonl", "csv", "arrow"])
def test_names_that_differ_in_case_only(tmp_path, end):
    if end == "jsonl":
        put(tmp_path, "a.jsonl", line(5, ID="upper", Y=1))
    elif end == "csv":
        put(tmp_path, "a.csv", 'id,ID,Y,x\n5,upper,1,"[1,2,3,4]"\n')
    else:
        (tmp_path / "in").mkdir()
        t = pa.table({"id": [5], "ID": ["upper"], "Y": [1], "x": pa.array([[1.0, 2, 3, 4]], pa.list_(pa.float32()))})
        with pa.OSFile(str(tmp_path / "in/a.arrow"), "wb") as f, pa.ipc.new_file(f, t.schema) as w:
            w.write_table(t)
    run(tmp_path, keep=("id", "ID", "Y"))
    assert batch.results(tmp_path).to_pylist() == [{"id": 5, "ID": "upper", "Y": 1, "y": 10.0, "z": [50, 51]}]


def test_kept_json_stays_json(tmp_path):
    put(tmp_path, "a.jsonl", line(5, o={"a": [1, {"b": None}], "c": 1.50}, l=[{"k": 1}, {"k": "x"}], s="plain") + line(6, o=None, l=[], s=None))
    run(tmp_path, "--output-format", "jsonl", keep=("id", "o", "l", "s"))
    (name,) = batch.names(tmp_path)
    rows = [json.loads(text) for text in (tmp_path / "out/parts" / name).read_text().splitlines()]
    assert [(r["o"], r["l"], r["s"]) for r in rows] == [({"a": [1, {"b": None}], "c": 1.5}, [{"k": 1}, {"k": "x"}], "plain"), (None, [], None)]


# ---- hints ----

def test_errors_say_which_columns_there_are(tmp_path):
    put(tmp_path, "a.jsonl", line(5, name="n"))
    for args in ({"keep": ("nosuch",)}, {"args": ("--map", "x=nosuch")}, {"args": ("--columns", "nosuch")}):
        said = run(tmp_path, *args.get("args", ()), keep=args.get("keep", ("id",)), code=1)
        assert "nosuch" in said and "id, x, name" in said


@pytest.mark.parametrize("between,word", [(";", "';'"), ("\t", "$'\\t'"), ("|", "'|'")])
@pytest.mark.parametrize("rows", [0, 1])
def test_errors_of_csv_with_another_delimiter_say_so(tmp_path, between, word, rows):
    put(tmp_path, "a.csv", between.join(["id", "x", "name"]) + "\n" + rows * between.join(["1", '"[1,2,3,4]"', "n\n"]))
    assert f"--delimiter {word}" in run(tmp_path, code=1)


def test_another_and_other(tmp_path):
    put(tmp_path, "a.jsonl", line(5, name="n"))
    run(tmp_path)
    put(tmp_path, "b.jsonl", line(6, name="n"))
    assert "with other inputs" in run(tmp_path, code=1)
    (tmp_path / "in/b.jsonl").unlink()
    assert "with other results" in run(tmp_path, keep=("name",), code=1)
    put(tmp_path, "a.jsonl", line(6, name="n"))
    os.utime(tmp_path / "in/a.jsonl", (1, 1))
    assert "with another input 0" in run(tmp_path, code=1)


# ---- paths ----

def test_one_file_under_several_names_is_one_file(tmp_path):
    put(tmp_path, "a.jsonl", line(5))
    run(tmp_path, inputs=("in/a.jsonl", tmp_path / "in/a.jsonl", "./in/../in", tmp_path / "in/*.jsonl"), cwd=tmp_path)
    assert batch.results(tmp_path)["id"].to_pylist() == [5]


def test_a_job_goes_on_with_another_name_of_its_input(tmp_path):
    put(tmp_path, "a.jsonl", line(5))
    run(tmp_path, inputs=("in",), cwd=tmp_path)
    run(tmp_path, inputs=(tmp_path / "in",))
    run(tmp_path, inputs=("../in",), cwd=tmp_path / "out")
    (tmp_path / "moved").mkdir()
    (tmp_path / "in").rename(tmp_path / "moved/in")  # the same name, from elsewhere
    run(tmp_path, inputs=("in",), cwd=tmp_path / "moved")
    assert batch.results(tmp_path)["id"].to_pylist() == [5]


# ---- refused ----

@pytest.mark.parametrize("args", [("--map", "x=nosuch"), ("--outputs", "nosuch"), ("--shard", "0/2", "--map", "x=nosuch")])
def test_a_refused_start_leaves_nothing(tmp_path, args):
    put(tmp_path, "a.jsonl", line(5))
    (tmp_path / ("n" * 120)).mkdir()  # no room for the name of a socket
    folder = tmp_path / ("n" * 120) / "new/job"
    said = run(tmp_path, *args, "-o", folder, keep=(), addresses=["127.0.0.1:1"], code=1)
    assert said.count("\n") == 1 and "nosuch" in said, said
    assert list((tmp_path / ("n" * 120)).iterdir()) == []


def test_a_table_of_results_that_does_not_fit_keeps_no_folder(tmp_path):
    import sqlite3
    put(tmp_path, "a.jsonl", line(5))
    with sqlite3.connect(tmp_path / "r.db") as db:
        db.execute("create table t (id integer)")
    to = ("--output-database", f"sqlite:{tmp_path}/r.db", "--output-table")
    said = run(tmp_path, *to, "t", code=1)
    assert "no column" in said and not (tmp_path / "out").exists()
    run(tmp_path, *to, "u")
    with sqlite3.connect(tmp_path / "r.db") as db:
        assert db.execute("select id, y from u").fetchall() == [(5, 10.0)]


def test_what_was_there_stays(tmp_path):
    put(tmp_path, "a.jsonl", line(5))
    (tmp_path / "out").mkdir()
    run(tmp_path, "--map", "x=nosuch", code=1)
    assert (tmp_path / "out").exists()
