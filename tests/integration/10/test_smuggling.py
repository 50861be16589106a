"""Request smuggling over HTTP/1.1, by table: bytes that two readers could parse as different requests.

Each row is followed by a last request that asks for the end of the connection. A row either is one request whose
end is certain, or it is refused and the connection closes at once: the last request is then not answered. Text that looks
like a request inside a row (MARK) is never answered.
"""
import json

import pytest

from lib.raw import Closed, Http1, request

LIVE = "/v2/health/live"
MARK = b"GET /smuggled HTTP/1.1\r\nHost: localhost\r\n\r\n"  # would be answered 404
LAST = request("GET", LIVE, "Connection: close\r\n")
N = len(MARK)
CHUNKED = "Transfer-Encoding: chunked\r\n"
CHUNKS = b"%x\r\n%s\r\n0\r\n\r\n" % (N, MARK)

TAKEN = [200, 200]
REFUSED = [400]


def ask(headers="", body=b"", line=f"GET {LIVE} HTTP/1.1", host="Host: localhost\r\n"):
    return f"{line}\r\n{host}{headers}\r\n".encode("latin-1") + body


def length(value):
    return ask(f"Content-Length:{value}\r\n", MARK)


def coding(value):
    return ask(f"Transfer-Encoding:{value}\r\n", CHUNKS)


def chunks(data):
    return ask(CHUNKED, data + MARK)


def field(line):
    """A header line that is no framing, in a request with a body."""
    return ask(f"{line}\r\nContent-Length: {N}\r\n", MARK)


def target(text, version="HTTP/1.1"):
    return ask(line=f"GET {text} {version}")


ROWS = {
    # Content-Length
    "length": (length(f" {N}"), TAKEN),
    "length without blank": (length(N), TAKEN),
    "length in blanks and tabs": (length(f" \t {N} \t "), TAKEN),
    "length with zeros before it": (length(f" 000{N}"), TAKEN),
    "same length twice": (ask(f"Content-Length: {N}\r\nContent-Length: {N}\r\n", MARK), TAKEN),
    "two lengths": (ask(f"Content-Length: {N}\r\nContent-Length: {N + 1}\r\n", MARK), REFUSED),
    "two lengths, one of them 0": (ask(f"Content-Length: 0\r\nContent-Length: {N}\r\n", MARK), REFUSED),
    "list of lengths": (length(f" {N}, {N + 1}"), REFUSED),
    "list of the same length": (length(f" {N}, {N}"), REFUSED),
    "length with plus": (length(f" +{N}"), REFUSED),
    "negative length": (length(" -1"), REFUSED),
    "hexadecimal length": (length(f" {N:#x}"), REFUSED),
    "length with letters": (length(f" {N}a"), REFUSED),
    "length with a point": (length(f" {N}.0"), REFUSED),
    "length with exponent": (length(" 3e1"), REFUSED),
    "length with blank inside": (length(" 1 0"), REFUSED),
    "length in quotes": (length(f' "{N}"'), REFUSED),
    "length in other digits": (length(" \xd9\xa3"), REFUSED),
    "empty length": (length(""), REFUSED),
    "length beyond 63 bits": (length(" 9223372036854775808"), REFUSED),
    "length beyond 64 bits": (length(" 18446744073709551617"), REFUSED),
    "length beyond all": (length(" " + "9" * 300), REFUSED),
    "length beyond the limit": (length(f" {(64 << 20) + 1}"), REFUSED),
    "length named as a header of the connection": (ask(f"Connection: content-length\r\nContent-Length: {N}\r\n", MARK), TAKEN),
    "length in another header": (ask(f"Content_Length: 3\r\nX-Content-Length: 4\r\nContent-Length: {N}\r\n", MARK), TAKEN),
    # Transfer-Encoding
    "chunked": (coding(" chunked"), TAKEN),
    "chunked in capitals": (coding(" CHUNKED"), TAKEN),
    "chunked in blanks and tabs": (coding("\t chunked \t"), TAKEN),
    "chunked in another header": (ask(f"Transfer_Encoding: chunked\r\nContent-Length: {N}\r\n", MARK), TAKEN),
    "length and chunked": (ask(f"Content-Length: {N}\r\n{CHUNKED}", CHUNKS), REFUSED),
    "chunked and length": (ask(f"{CHUNKED}Content-Length: 5\r\n", CHUNKS), REFUSED),
    "chunked and length 0": (ask(f"{CHUNKED}Content-Length: 0\r\n", CHUNKS), REFUSED),
    "chunked and a bad length": (ask(f"{CHUNKED}Content-Length: x\r\n", CHUNKS), REFUSED),
    "unknown coding and length": (ask(f"Transfer-Encoding: x\r\nContent-Length: {N}\r\n", MARK), REFUSED),
    "chunked twice": (coding(" chunked, chunked"), REFUSED),
    "two chunked headers": (ask(CHUNKED + CHUNKED, CHUNKS), REFUSED),
    "unknown coding": (coding(" xchunked"), [501]),
    "coding with parameter": (coding(" chunked;q=1"), [501]),
    "coding cut short": (coding(" chunke"), [501]),
    "two words": (coding(" chunked x"), [501]),
    "identity": (coding(" identity"), [501]),
    "gzip, chunked": (coding(" gzip, chunked"), [501]),
    "gzip and chunked": (ask(f"Transfer-Encoding: gzip\r\n{CHUNKED}", CHUNKS), [501]),
    "chunked, gzip": (coding(" chunked, gzip"), REFUSED),
    "chunked, identity": (coding(" chunked, identity"), REFUSED),
    "coding behind a comma": (coding(" ,chunked"), REFUSED),
    "coding before a comma": (coding(" chunked,"), REFUSED),
    "coding behind a vertical tab": (coding(" \x0bchunked"), REFUSED),
    "coding behind a form feed": (coding(" \x0cchunked"), REFUSED),
    "coding behind a no-break space": (coding(" \xa0chunked"), [501]),
    "coding in quotes": (coding(' "chunked"'), [501]),
    "empty coding": (coding(""), REFUSED),
    "folded coding": (coding("\r\n chunked"), REFUSED),
    "chunked in HTTP/1.0": (ask(CHUNKED, CHUNKS, f"GET {LIVE} HTTP/1.0"), REFUSED),
    "chunked in HTTP/1.0 that stays": (ask(f"Connection: keep-alive\r\n{CHUNKED}", CHUNKS, f"GET {LIVE} HTTP/1.0"), REFUSED),
    # chunks
    "small and capital digits": (ask(CHUNKED, b"a\r\n0123456789\r\nB\r\n0123456789a\r\n0\r\n\r\n"), TAKEN),
    "zeros before a chunk size": (ask(CHUNKED, b"0000005\r\nabcde\r\n000\r\n\r\n"), TAKEN),
    "extensions": (ask(CHUNKED, b'5;a;b=c;d="e f"\r\nabcde\r\n0;x\r\n\r\n'), TAKEN),
    "trailers": (ask(CHUNKED, b"0\r\nX-A: b\r\nHost: 127.0.0.1\r\nContent-Length: 9\r\nTransfer-Encoding: x\r\n\r\n"), TAKEN),
    "bad chunk size": (chunks(b"zz\r\n"), REFUSED),
    "negative chunk size": (chunks(b"-5\r\nabcde\r\n0\r\n\r\n"), REFUSED),
    "chunk size with prefix": (chunks(b"0x5\r\nabcde\r\n0\r\n\r\n"), REFUSED),
    "chunk size with plus": (chunks(b"+5\r\nabcde\r\n0\r\n\r\n"), REFUSED),
    "chunk size with a line below": (chunks(b"0_5\r\nabcde\r\n0\r\n\r\n"), REFUSED),
    "blank before the chunk size": (chunks(b" 5\r\nabcde\r\n0\r\n\r\n"), REFUSED),
    "blank behind the chunk size": (chunks(b"5 \r\nabcde\r\n0\r\n\r\n"), REFUSED),
    "tab behind the chunk size": (chunks(b"5\t;x\r\nabcde\r\n0\r\n\r\n"), REFUSED),
    "empty chunk size": (chunks(b"\r\nabcde\r\n0\r\n\r\n"), REFUSED),
    "extension without size": (chunks(b";x\r\nabcde\r\n0\r\n\r\n"), REFUSED),
    "chunk size beyond 63 bits": (chunks(b"8000000000000005\r\nabcde\r\n0\r\n\r\n"), REFUSED),
    "chunk size beyond 64 bits": (chunks(b"10000000000000005\r\nabcde\r\n0\r\n\r\n"), REFUSED),
    "more zeros than a size has digits": (chunks(b"0" * 40 + b"5\r\nabcde\r\n0\r\n\r\n"), REFUSED),
    "chunk longer than said": (chunks(b"5\r\nabcdef\r\n0\r\n\r\n"), REFUSED),
    "chunk shorter than said": (chunks(b"5\r\nabc\r\n0\r\n\r\n"), REFUSED),
    "chunk ends with LF": (chunks(b"5\r\nabcde\n0\r\n\r\n"), REFUSED),
    "chunk ends with CR": (chunks(b"5\r\nabcde\r0\r\n\r\n"), REFUSED),
    "chunk size ends with LF": (chunks(b"5\nabcde\r\n0\r\n\r\n"), REFUSED),
    "chunk size ends with CR": (chunks(b"5\rabcde\r\n0\r\n\r\n"), REFUSED),
    "LF in an extension": (chunks(b"5;a\nb\r\nabcde\r\n0\r\n\r\n"), REFUSED),
    "CR in an extension": (chunks(b"5;a\rb\r\nabcde\r\n0\r\n\r\n"), REFUSED),
    "NUL in an extension": (chunks(b"5;\0\r\nabcde\r\n0\r\n\r\n"), REFUSED),
    "LF in quotes of an extension": (chunks(b'5;a="\n"\r\nabcde\r\n0\r\n\r\n'), REFUSED),
    "extensions without end": (chunks(b"5;" + b"x" * 100_000 + b"\r\nabcde\r\n0\r\n\r\n"), REFUSED),
    "last chunk ends with LF": (chunks(b"0\n\r\n"), REFUSED),
    "no CR behind the last chunk": (chunks(b"0\r\n\n"), REFUSED),
    "folded trailer": (chunks(b"0\r\nX-A: b\r\n c\r\n\r\n"), REFUSED),
    "trailer ends with LF": (chunks(b"0\r\nX-A: b\n\r\n"), REFUSED),
    "NUL in a trailer": (chunks(b"0\r\nX-A: \0\r\n\r\n"), REFUSED),
    "trailers without end": (chunks(b"0\r\n" + b"X-A: b\r\n" * 20_000 + b"\r\n"), REFUSED),
    # header lines
    "value beyond ASCII": (field("X-A: \xe9"), TAKEN),
    "blank before the colon": (ask("Transfer-Encoding : chunked\r\n", CHUNKS), REFUSED),
    "tab before the colon": (ask("Transfer-Encoding\t: chunked\r\n", CHUNKS), REFUSED),
    "blank before a length's colon": (ask(f"Content-Length : {N}\r\n", MARK), REFUSED),
    "blank before a name": (ask(f"X-A: b\r\n Content-Length: {N}\r\n", MARK), REFUSED),
    "folded header": (ask(f"X-A: b\r\n Content-Length: 3\r\nContent-Length: {N}\r\n", MARK), REFUSED),
    "folded by a tab": (field("X-A: b\r\n\tc"), REFUSED),
    "folded first header": (ask(host=" Host: localhost\r\nHost: localhost\r\n"), REFUSED),
    "bare CR in a value": (field("X-A: b\rContent-Length: 3"), REFUSED),
    "bare LF in a value": (field("X-A: b\nContent-Length: 3"), REFUSED),
    "NUL in a value": (field("X-A: b\0c"), REFUSED),
    "DEL in a value": (field("X-A: \x7f"), REFUSED),
    "escape in a value": (field("X-A: \x1b[0m"), REFUSED),
    "NUL in a name": (field("X\0A: b"), REFUSED),
    "NUL behind a name": (ask(f"Content-Length\0: {N}\r\n", MARK), REFUSED),
    "name beyond ASCII": (field("X-\xe9: b"), REFUSED),
    "name with a blank": (field("X A: b"), REFUSED),
    "name with a bracket": (field("X(A: b"), REFUSED),
    "no name": (field(": b"), REFUSED),
    "no colon": (field("nothing"), REFUSED),
    "lines end with LF": (f"GET {LIVE} HTTP/1.1\nHost: localhost\nContent-Length: {N}\n\n".encode() + MARK, REFUSED),
    "one line ends with LF": (f"GET {LIVE} HTTP/1.1\r\nHost: localhost\nContent-Length: {N}\r\n\r\n".encode() + MARK, REFUSED),
    "lines end with CR": (f"GET {LIVE} HTTP/1.1\rHost: localhost\rContent-Length: {N}\r\r".encode() + MARK, REFUSED),
    "empty line ends with LF": (f"GET {LIVE} HTTP/1.1\r\nHost: localhost\r\n\n".encode() + MARK, REFUSED),
    # targets
    "absolute form": (target(f"http://localhost{LIVE}"), TAKEN),
    "absolute form of another host": (target(f"http://127.0.0.1:1{LIVE}"), TAKEN),
    "absolute form without host": (target(f"http://{LIVE}"), REFUSED),
    "absolute form of another scheme": (target(f"ftp://x{LIVE}"), REFUSED),
    "authority form": (target("x:80"), REFUSED),
    "path without slash": (target("v2"), REFUSED),
    "asterisk": (target("*"), REFUSED),
    "fragment": (target(f"{LIVE}#a"), REFUSED),
    "NUL in the path": (target("/v2\0"), REFUSED),
    "CR in the path": (target("/v2\r/"), REFUSED),
    "tab in the path": (target("/v2\t"), REFUSED),
    "escaped line end in the path": (target("/v2%0d%0aX:%20y"), [404, 200]),
    "OPTIONS *": (ask(line="OPTIONS * HTTP/1.1"), [404, 200]),
    "CONNECT opens no tunnel": (ask(line="CONNECT x:80 HTTP/1.1"), [404, 200]),
    "TRACE echoes nothing": (ask("X-Secret: a\r\n", line=f"TRACE {LIVE} HTTP/1.1"), [405, 200]),
    "body of a request that is not found": (ask(f"Content-Length: {N}\r\n", MARK, "POST /nothing HTTP/1.1"), [404, 200]),
    "chunks of a request that is not found": (ask(CHUNKED, CHUNKS, "POST /nothing HTTP/1.1"), [404, 200]),
    "body of a method that is not allowed": (ask(f"Content-Length: {N}\r\n", MARK, f"DELETE {LIVE} HTTP/1.1"), [405, 200]),
    # request lines
    "two blanks": (target(f" {LIVE}"), REFUSED),
    "a word too many": (target(LIVE, "HTTP/1.1 x"), REFUSED),
    "blank at the end": (target(LIVE, "HTTP/1.1 "), REFUSED),
    "tab for a blank": (ask(line=f"GET\t{LIVE} HTTP/1.1"), REFUSED),
    "blank before the method": (ask(line=f" GET {LIVE} HTTP/1.1"), REFUSED),
    "method with a bracket": (ask(line=f"GE(T {LIVE} HTTP/1.1"), REFUSED),
    "no version": (ask(line=f"GET {LIVE}"), REFUSED),
    "HTTP/0.9": (f"GET {LIVE}\r\n".encode(), REFUSED),
    "version HTTP/0.9": (target(LIVE, "HTTP/0.9"), [505]),
    "version HTTP/2.0": (target(LIVE, "HTTP/2.0"), [505]),
    "version HTTP/1.2": (target(LIVE, "HTTP/1.2"), TAKEN),
    "version HTTP/1": (target(LIVE, "HTTP/1"), REFUSED),
    "version http/1.1": (target(LIVE, "http/1.1"), REFUSED),
    "version HTTP/1.10": (target(LIVE, "HTTP/1.10"), REFUSED),
    "version HTTP/01.1": (target(LIVE, "HTTP/01.1"), REFUSED),
    "version HTTP/1,1": (target(LIVE, "HTTP/1,1"), REFUSED),
    "version HTTPS/1.1": (target(LIVE, "HTTPS/1.1"), REFUSED),
    # Host
    "Host with port": (ask(host="Host: [::1]:8000\r\n"), TAKEN),
    "empty Host": (ask(host="Host:\r\n"), TAKEN),
    "no Host": (ask(host=""), REFUSED),
    "two Hosts": (ask("Host: 127.0.0.1\r\n"), REFUSED),
    "the same Host twice": (ask("Host: localhost\r\n"), REFUSED),
    "two words in Host": (ask(host="Host: x y\r\n"), REFUSED),
    "list of Hosts": (ask(host="Host: x, y\r\n"), REFUSED),
    "path in Host": (ask(host="Host: x/y\r\n"), REFUSED),
    "user in Host": (ask(host="Host: x@y\r\n"), REFUSED),
    # Expect, Upgrade
    "unknown expectation": (ask(f"Expect: a-miracle\r\nContent-Length: {N}\r\n", MARK), [417]),
    "expectation with the body behind it": (ask(f"Expect: 100-continue\r\nContent-Length: {N}\r\n", MARK), TAKEN),
    "expectation without body": (ask("Expect: 100-continue\r\n"), TAKEN),
    "upgrade to h2c": (ask("Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n"), TAKEN),
    "upgrade to a web socket": (ask("Connection: Upgrade\r\nUpgrade: websocket\r\n"), TAKEN),
    "upgrade with body": (ask(f"Connection: Upgrade\r\nUpgrade: x\r\nContent-Length: {N}\r\n", MARK), TAKEN),
}


def answers(wire):
    """All that come until the server closes."""
    while True:
        try:
            yield wire.response()
        except Closed as e:
            assert e.rest == b"", e.rest
            return


@pytest.mark.parametrize("data, statuses", ROWS.values(), ids=ROWS)
@pytest.mark.parametrize("step", [None, 7], ids=["at once", "in pieces"])
def test_one_answer_per_request(server, data, statuses, step):
    data += LAST
    if step and len(data) > 2000:
        pytest.skip("the size is the point")
    with Http1(server.http) as wire:
        for at in range(0, len(data), step or len(data)):
            wire.send_until_refused(data[at : at + (step or len(data))])
        got = list(answers(wire))
    assert [a.status for a in got] == statuses
    for answer in got[-1:] if len(statuses) == 1 else []:
        assert json.loads(answer.body)["error"]
        assert answer.headers["connection"] == "close"
