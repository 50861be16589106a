"""Foreign HTTP servers, without statistics: a test defines their answers."""
import contextlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Handler(BaseHTTPRequestHandler):
    """Knows the metadata of one model, m; do_POST is up to the test. `server.lock` is for all requests."""
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    inputs = [{"name": "x", "datatype": "FP32", "shape": [2]}]

    def log_message(self, *_):
        pass

    def say(self, status, document):
        body = document if isinstance(document, bytes) else json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def body(self):
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def do_GET(self):
        if self.path == "/v2/models/m":
            self.say(200, {"name": "m", "inputs": self.inputs, "outputs": []})
        else:
            self.say(404, {"error": "not here"})


class Server(ThreadingHTTPServer):
    request_queue_size = 128


@contextlib.contextmanager
def serving(handler):
    """The server, on a port of its own, while the block runs."""
    with Server(("127.0.0.1", 0), handler) as server:
        server.lock = threading.Lock()
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
