"""Dead letters: what they say of a row, and trying them again."""
import base64

import pyarrow as pa
import pyarrow.parquet as pq

from lib.batch import Host, Poisoned, check, dead, hosts, pytestmark, run, table


def letters(folder):
    return {d["row"]: d for d in dead(folder)}


def test_the_row_and_the_answer(tmp_path):
    x = table(tmp_path / "in", 2000, files=1, bad={5: None})
    with hosts(Poisoned) as (addresses, _):
        run(tmp_path, addresses)
    found = letters(tmp_path)
    assert sorted(found) == [5, 777]
    assert found[5]["values"] == {"id": 5, "x": None, "name": "row 5"}
    assert "answer" not in found[5] and "attempts" not in found[5]
    assert found[777]["values"] == {"id": 777, "x": x[777].tolist(), "name": "row 777"}
    text = '{"error": "row of ill will"}'
    assert found[777]["answer"] == {"status": 400, "bytes": len(text), "text": text}
    assert "truncated" not in found[777]


def test_large_cells_are_left_out(tmp_path):
    """By name, and the others stay."""
    (tmp_path / "in").mkdir()
    t = pa.table({"id": [0, 1], "x": [[1.0] * 4, None], "photo": [b"", b"\x00\xff" * 40000],
                  "text": ["", "y" * 30000], "more": ["", "z" * 40000], "small": [b"a", b"\xff"],
                  "name": ["", "row 1"]},
                 pa.schema({"id": pa.int64(), "x": pa.list_(pa.float32()), "photo": pa.binary(), "text": pa.string(),
                            "more": pa.string(), "small": pa.binary(), "name": pa.string()}))
    pq.write_table(t, tmp_path / "in/0.parquet")
    with hosts(Host) as (addresses, _):
        run(tmp_path, addresses)
    letter, = dead(tmp_path)
    assert letter["values"] == {"id": 1, "x": None, "text": "y" * 30000, "small": "/w==", "name": "row 1"}
    assert letter["truncated"] == ["photo", "more"]


def test_answers_that_are_no_text(tmp_path):
    """Cut where they are long: between characters, if they are text."""
    class Answers(Host):
        texts = {3: b"\x00\xff" * 3000, 4: b"x" + "\u00e4".encode() * 5000, 5: b""}

        def answer(self, number, x, key):
            bad = [k for k in key.tolist() if k in self.texts]
            self.say(400, self.texts[bad[0]]) if bad else self.good(x, key)
    table(tmp_path / "in", 100, files=1)
    with hosts(Answers) as (addresses, _):
        run(tmp_path, addresses)
    found = {row: d["answer"] for row, d in letters(tmp_path).items()}
    assert found == {3: {"status": 400, "bytes": 6000, "base64": base64.b64encode(b"\x00\xff" * 2048).decode()},
                     4: {"status": 400, "bytes": 10001, "text": "x" + "\u00e4" * 2047},
                     5: {"status": 400, "bytes": 0, "text": ""}}


def test_a_line_that_cannot_be_read(tmp_path):
    """It has no columns to tell of."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in/0.jsonl").write_text('{"id": 0, "x": [1, 2, 3, 4], "name": "row 0"}\n{"id": 1\n')
    with hosts(Host) as (addresses, _):
        run(tmp_path, addresses)
    letter, = dead(tmp_path)
    assert (letter["row"], letter["kind"]) == (1, "row") and "values" not in letter
