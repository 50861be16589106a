"""A web server of files, in ranges if it knows them."""
import contextlib
import http.server
import re
import threading

from lib import wait


class Handler(http.server.BaseHTTPRequestHandler):
    """Files by their paths, in ranges unless the server knows none; what begins with /moved leads to the rest of it."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        server, path = self.server, self.path.partition("?")[0]
        server.asked.append(self.path)
        if path in server.holds:
            server.holds[path].wait(wait.PATIENCE)
        if server.answers.get(path):
            return self.answer(*server.answers[path].pop(0))
        content = server.files.get(path)
        wanted = re.match(r"bytes=(\d+)-(\d+)$", self.headers.get("Range", "")) if server.has_ranges else None
        if path.startswith("/moved"):
            self.answer(302, b"", {"Location": path.removeprefix("/moved")})
        elif content is None:
            self.answer(404, b"nothing here")
        elif wanted:
            first, last = int(wanted[1]), min(int(wanted[2]), len(content) - 1)
            self.answer(206, content[first:last + 1], {"Content-Range": f"bytes {first}-{last}/{len(content)}"})
        else:
            self.answer(200, content)

    def answer(self, status, body, headers=None):
        self.send_response(status)
        for name, value in {**(headers or {}), "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Server(http.server.ThreadingHTTPServer):
    @contextlib.contextmanager
    def held(self, path):
        """What asks for that path meanwhile is answered at the end."""
        self.holds[path] = threading.Event()
        try:
            yield
        finally:
            self.holds.pop(path).set()


@contextlib.contextmanager
def serving():
    """A server of `files`, which keeps the paths that were asked for; `answers` of a path, (status, body, headers), come before its file."""
    server = Server(("127.0.0.1", 0), Handler)
    server.files, server.asked, server.holds, server.answers, server.has_ranges = {}, [], {}, {}, True
    server.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()
