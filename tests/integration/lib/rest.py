"""A plain HTTP client for the REST side: requests as dicts and bytes, answers as they came."""
import http.client
import json
import socket
from dataclasses import dataclass

from lib import wait


@dataclass
class Reply:
    status: int
    headers: dict  # lower-case names; several of a name are joined by ", "
    body: bytes

    def json(self):
        return json.loads(self.body)

    @property
    def error(self):
        """The text of an error answer, whose form is checked on the way."""
        assert self.status >= 400, f"no error but {self.status}: {self.body[:300]!r}"
        assert self.headers.get("content-type", "").startswith("application/json"), self.headers
        document = self.json()
        assert list(document) == ["error"] and isinstance(document["error"], str), document
        return document["error"]

    def ok(self):
        assert self.status == 200, f"{self.status}: {self.body[:500]!r}"
        return self

    def parts(self):
        """(JSON document, {output name: its binary data}) of an inference answer."""
        length = self.headers.get("inference-header-content-length")
        if length is None:
            return self.json(), {}
        document, rest = json.loads(self.body[: int(length)]), self.body[int(length):]
        blobs = {}
        for output in document["outputs"]:
            size = output.get("parameters", {}).get("binary_data_size")
            if size is not None:
                blobs[output["name"]], rest = rest[:size], rest[size:]
        assert rest == b"", f"{len(rest)} bytes follow the last output"
        return document, blobs


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path, timeout):
        super().__init__("localhost", timeout=timeout)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class Rest:
    """One keep-alive connection; opened again by itself when the server closed it as announced."""

    def __init__(self, port=None, host="127.0.0.1", unix=None, timeout=wait.PATIENCE):
        unix = port if isinstance(port, str) else unix  # Server.http of a server that listens on a socket file
        self.connection = UnixConnection(unix, timeout) if unix else http.client.HTTPConnection(host, port, timeout=timeout)

    def close(self):
        self.connection.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def request(self, method, path, body=None, headers=None):
        if isinstance(body, (dict, list)):
            body = json.dumps(body)
        if isinstance(body, str):
            body = body.encode()
        self.connection.request(method, path, body=body, headers=headers or {})
        response = self.connection.getresponse()
        found = {}
        for key, value in response.getheaders():
            key = key.lower()
            found[key] = f"{found[key]}, {value}" if key in found else value
        return Reply(response.status, found, response.read())

    def get(self, path, **kw):
        return self.request("GET", path, **kw)

    def post(self, path, body=b"", **kw):
        return self.request("POST", path, body=body, **kw)

    def infer(self, model, inputs, headers=None, **fields):
        """inputs: dicts of the protocol, or (name, datatype, shape, data) tuples; other fields as they are."""
        return self.post(infer_path(model), {"inputs": [as_input(i) for i in inputs], **fields}, headers=headers)

    def infer_binary(self, model, inputs, blobs, headers=None, **fields):
        """Inputs without data get binary_data_size from their blob, in order; blobs: bytes each."""
        body, length = binary_body(inputs, blobs, **fields)
        return self.post(infer_path(model), body, headers={"Inference-Header-Content-Length": str(length), **(headers or {})})

    def stats(self, model):
        return self.get(f"/v2/models/{model}/stats").ok().json()["model_stats"]


def infer_path(model):
    return f"/v2/models/{model}/infer"


def as_input(i):
    return i if isinstance(i, dict) else dict(zip(("name", "datatype", "shape", "data"), i))


def binary_body(inputs, blobs, **fields):
    """(body, length of its JSON part)"""
    inputs = [dict(as_input(i)) for i in inputs]
    waiting = list(blobs)
    for i in inputs:
        if "data" not in i and "binary_data_size" not in i.get("parameters", {}):
            i["parameters"] = {**i.get("parameters", {}), "binary_data_size": len(waiting.pop(0))}
    document = json.dumps({"inputs": inputs, **fields}).encode()
    return document + b"".join(blobs), len(document)
