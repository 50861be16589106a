"""The client library and hosts that break off, or answer what no host should."""
import pytest

from lib import sdk
from lib.sdk import run_python as run
from lib.services import odd

pytestmark = pytest.mark.skipif(sdk.MISSING, reason="no build folder, or no compiler")

KINDS = pytest.mark.parametrize("kind", ["http", "grpc"])


@KINDS
@pytest.mark.parametrize("way", ["once=True", "sequence=5", "key=None"])
def test_a_request_that_must_not_be_sent_twice_is_not(kind, way):
    """The host reads the second one on the connection that has served the first, and closes: it may have done it."""
    with odd.serving(kind, odd.GOOD[kind], [odd.CLOSE], odd.GOOD[kind]) as host:
        run(f"""
with millrace.Client(words[0]) as client:
    infer(client, {way})
    if {way == "key=None"}:
        infer(client)
    else:
        assert refused(client, {way}).reason == "unavailable"
""", host.url)
        assert host.asked == (3 if way == "key=None" else 2)


def elsewhere(kind, *answers):
    """A host that always answers so beside a good one: the call is tried there."""
    with odd.serving(kind, *answers) as bad, odd.serving(kind, odd.GOOD[kind]) as good:
        run("""
with millrace.Client(*words, strategy="round_robin") as client:
    results = [infer(client) for _ in range(4)]
    assert {r.host for r in results} == {words[1]}
    assert max(r.attempts for r in results) == 2, [r.attempts for r in results]
""", bad.url, good.url)
        assert bad.asked > 0


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_a_proxy_that_answers_for_a_host_of_grpc(status):
    elsewhere("grpc", [odd.head((":status", str(status)), ("content-type", "text/html")), odd.data(b"<html>", end=True)])
