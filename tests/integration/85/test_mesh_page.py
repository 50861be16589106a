"""GET /v2/mesh/page: its script, run by Node.js in the place of a browser, shows what the servers say."""
import json
import re
import shutil
import subprocess

import pytest

from lib import repo, wait
from lib.rest import Rest
from lib.services.mesh import answers

# Elements that keep their text and children, and events that the test sends itself.
BROWSER = """
const [url, ...events] = process.argv.slice(1);
class Element {
  constructor() { this.children = []; this.textContent = this.className = this.value = ""; }
  append(...all) { for (const e of all) { e.parent = this; this.children.push(e); } }
  replaceChildren(...all) { this.children = []; this.append(...all); }
  replaceWith(e) { e.parent = this.parent; this.parent.children[this.parent.children.indexOf(this)] = e; }
  remove() { this.parent.children.splice(this.parent.children.indexOf(this), 1); }
  addEventListener() {}
}
const elements = {};
globalThis.document = {getElementById: id => elements[id] ??= new Element(), createElement: () => new Element()};
globalThis.EventSource = class {
  constructor(path) { this.path = path; this.on = {}; globalThis.source = this; }
  addEventListener(name, run) { this.on[name] = run; }
};
const real = fetch;
globalThis.fetch = (path, options) => real(new URL(path, url), options);
const seen = [];
const until = async what => { while (!what()) await new Promise(done => setTimeout(done, 20)); };
const rows = id => (elements[id]?.children ?? []).map(row => row.children.map(c => String(c.textContent)));
real(url).then(r => r.text()).then(async page => {
  (0, eval)(page.match(/<script>(.*)<\\/script>/s)[1]);
  source.onopen();
  await until(() => rows("models").length && rows("servers").length);
  seen.push({state: elements.state.textContent, servers: rows("servers"), models: rows("models"), watch: source.path});
  for (const e of events) {
    source.on.model({data: e});
    seen.push({models: rows("models")});
  }
  console.log(JSON.stringify(seen));
  process.exit(0);
});
"""


@pytest.fixture
def page(server):
    with Rest(server.http) as rest:
        return rest.get("/v2/mesh/page").ok()


def test_page_needs_nothing_from_elsewhere(page):
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy and "connect-src 'self'" in policy and "frame-ancestors 'none'" in policy
    text = page.body.decode()
    assert not re.search(r"src=|https?:|@import|url\(|innerHTML", text) and text.count("<script") == 1


@pytest.mark.skipif(not shutil.which("node"), reason="Node.js is not here")
def test_page_shows_servers_and_models(fleet, models):
    for name in ("a", "b"):
        repo.add(models, name, repo.config())
    servers = fleet(models, models)
    answers(servers[0], "a")
    with Rest(servers[1].http) as rest:
        wait.until(lambda: rest.get("/v2/mesh/models/a").json()["status"] == "LOADED", "the copy to be known")
        model = rest.get("/v2/mesh/models/b").ok().json()
    changed = {**model, "status": "LOADING_FAILED", "copies": [{"instance": "s1", "state": "FAILED", "size_bytes": 0, "reason": "<b>why</b>"}]}
    events = [json.dumps(e) for e in (changed, {**model, "status": "NOT_FOUND"}, {**model, "id": "c"})]
    done = subprocess.run(["node", "-e", BROWSER, f"http://{servers[1].url()}/v2/mesh/page", *events], capture_output=True, text=True, timeout=wait.PATIENCE)
    assert done.returncode == 0, done.stderr
    first, failed, gone, new = json.loads(done.stdout)
    assert first["state"].startswith("Server s1, registry ") and "2 models" in first["state"] and first["watch"] == "watch?prefix="
    assert [row[0] for row in first["servers"]] == ["s0", "s1"] and all(row[3] == "there" for row in first["servers"])
    assert [(row[0], row[1]) for row in first["models"]] == [("a", "LOADED"), ("b", "NOT_LOADED")] and first["models"][0][4] in ("s0", "s1")
    assert failed["models"][1][1:] == ["LOADING_FAILED", "millrace", "", "s1 [FAILED: <b>why</b>]"]
    assert [row[0] for row in gone["models"]] == ["a"] and [row[0] for row in new["models"]] == ["a", "c"]
