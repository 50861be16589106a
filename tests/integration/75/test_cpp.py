"""What a request of the C++ header may have, as a server gets it."""
import json
from pathlib import Path

import pytest

from lib import repo, sdk
from lib.services import other

pytestmark = pytest.mark.skipif(sdk.MISSING, reason="no build folder, or no compiler")


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cpp")
    return sdk.compile_c(Path(__file__).with_name("request.cpp"), sdk.install(folder / "prefix"), folder / "request")


@pytest.mark.parametrize("kind", ["http", "grpc"])
def test_variants_versions_and_ids(models, start, tmp_path, program, kind):
    repo.add(models, "m", versions=(1, 2), extra="version_policy { all { } }")
    server = start(models)
    config = tmp_path / "endpoints.pbtxt"
    config.write_text(f'''
client {{ remote: "{kind}://{server.url(kind)}" timeout_ms: 300000 attempt_timeout_ms: 300000 }}
endpoint {{ name: "e" variant {{ tag: "a" model: "m" version: 1 weight: 1 }} variant {{ tag: "b" model: "m" version: 2 weight: 1 }} }}''')
    *answers, no_version, no_variant = sdk.run(program, "answers", config).splitlines()
    assert answers == ["variant 'a' version '1' id '' attempts 1", "variant 'b' version '2' id 'seven' attempts 1",
                       "variant 'b' version '1' id '' attempts 1", "variant '' version '2' id 'eight' attempts 1"]
    assert "version 3" in no_version
    assert no_variant == "endpoint 'e' has no variant 'c'"
    if kind == "grpc":
        assert sorted(sdk.run(program, "stream", config).splitlines()) == ["id '' ", "id 'other' ", "id 'own' "]
        *tags, why = sdk.run(program, "streams", config).splitlines()
        assert tags == ["a", "b", "b"] and "headers" in why


class Handler(other.Handler):
    def do_POST(self):
        body, length = self.body(), self.headers.get("Inference-Header-Content-Length")
        self.server.asked.append((self.path, dict(self.headers.items()), json.loads(body[:int(length)] if length else body)))
        if "busy" in self.path:
            self.say(503, {"error": "busy"})
        else:
            self.say(200, {"model_name": "all", "model_version": "3", "outputs": []})


def test_all_that_a_request_has(program):
    with other.serving(Handler) as server:
        server.asked = []
        lines = sdk.run(program, "all", f"http://127.0.0.1:{server.server_port}").splitlines()
    (path, headers, first), (_, _, second), *others = server.asked
    assert path == "/v2/models/all/versions/3/infer" and first["id"] == "nine" and "id" not in second
    assert (headers["x-team"], headers["x-run"]) == ("blue", "12")
    assert first["parameters"].items() >= {"flag": True, "off": False, "count": -5, "large": 2**62, "ratio": 0.25, "text": "words",
                                           "literal": 'a "word"', "priority": 4, "sequence_id": 77, "sequence_start": True,
                                           }.items()
    assert second["parameters"].items() >= {"sequence_id": 77, "sequence_end": True}.items()
    assert not first["parameters"].get("sequence_end") and not second["parameters"].get("sequence_start")
    asked = [path.split("/")[5] for path, _, _ in others]
    assert asked.count("1") == 3 and asked.count("2") == asked.count("3") == 1, asked
    assert lines[2] == f"parameter 'count': {2**64 - 1} is more than {2**63 - 1}"
    assert len(lines) == 6 and all("busy" in line for line in lines[3:])
