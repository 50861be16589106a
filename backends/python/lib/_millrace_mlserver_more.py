"""Of models of MLServer: metrics, which become the server's, and handlers for paths of their own."""
import asyncio
import inspect
import time
from contextlib import contextmanager
from urllib.parse import unquote

import mlserver
import mlserver.metrics
import mlserver.metrics.context
import triton_python_backend_utils as pb_utils
from mlserver.handlers.custom import get_custom_handlers

# ---- metrics ----

BUCKETS = (.005, .01, .025, .05, .075, .1, .25, .5, .75, 1, 2.5, 5, 7.5, 10)


class Series:
    """A histogram with values for its labels."""

    def __init__(self, metric):
        self._metric = metric

    def observe(self, amount, exemplar=None):
        self._metric.observe(amount)

    @contextmanager
    def time(self):
        begin = time.perf_counter()
        try:
            yield
        finally:
            self.observe(time.perf_counter() - begin)


class Histogram(Series):
    """What `register` returns. The labels of the model are known: without `labels` they are meant."""

    def __init__(self, name, description, labels):
        family = pb_utils.MetricFamily(name, description, pb_utils.MetricFamily.HISTOGRAM)
        super().__init__(family.Metric(labels, BUCKETS))
        self._family, self._series = family, {tuple(labels.items()): self}

    def labels(self, *values, **labels):
        if values:
            labels = dict(zip(("model_name", "model_version"), values))
        key = tuple(sorted((k, str(v)) for k, v in labels.items()))
        if key not in self._series:
            self._series[key] = Series(self._family.Metric(dict(key), BUCKETS))
        return self._series[key]


class Metrics:
    """`mlserver.register` and `mlserver.log` of a model."""

    def __init__(self, settings):
        self._labels = {"model_name": settings.name, "model_version": settings.version or ""}
        self._known = {}
        for module in (mlserver, mlserver.metrics, mlserver.metrics.context):
            module.register, module.log = self.register, self.log

    def register(self, name, description):
        if name not in self._known:
            self._known[name] = Histogram(name, description, self._labels)
        return self._known[name]

    def log(self, **values):
        for name, value in values.items():
            self.register(name, "").observe(value)


# ---- custom handlers ----

def routes_of(implementation):
    """"METHOD /path" of each."""
    found = {}
    for _, member in inspect.getmembers(implementation):
        handler = getattr(member, "__custom_handler__", None)
        if handler is not None:
            found[f"{handler.rest_method.upper()} /{handler.rest_path.lstrip('/')}"] = None
    return list(found)


def app_of(model):
    """An ASGI application of the model's handlers, with MLServer's classes for requests and responses."""
    from fastapi import FastAPI
    from mlserver.rest.app import APIRoute
    from mlserver.rest.errors import _EXCEPTION_HANDLERS
    from mlserver.rest.responses import Response

    app = FastAPI(default_response_class=Response, exception_handlers=_EXCEPTION_HANDLERS, docs_url=None, redoc_url=None, openapi_url=None)
    app.router.route_class = APIRoute
    for handler, method in get_custom_handlers(model):
        app.add_api_route("/" + handler.rest_path.lstrip("/"), method, methods=[handler.rest_method])
    return app


async def run_app(app, method, path, query, headers, body):
    """Status, headers as pairs, and body of the answer."""
    found = {"status": 500, "headers": [], "body": b""}
    messages = [{"type": "http.request", "body": bytes(body), "more_body": False}]
    ended = asyncio.get_running_loop().create_future()

    async def receive():
        if not messages:
            await ended  # an answer that is still being made stops at a disconnect
            return {"type": "http.disconnect"}
        return messages.pop()

    async def send(message):
        if message["type"] == "http.response.start":
            found.update(status=message["status"], headers=message.get("headers", []))
        elif message["type"] == "http.response.body":
            found["body"] += message.get("body", b"")
            if not message.get("more_body") and not ended.done():
                ended.set_result(None)

    await app({"type": "http", "asgi": {"version": "3.0", "spec_version": "2.3"}, "http_version": "1.1", "method": method,
               "scheme": "http", "path": unquote(path), "raw_path": path.encode(), "query_string": query.encode(), "root_path": "",
               "headers": [(k.encode("latin-1", "replace"), v.encode("latin-1", "replace")) for k, v in headers.items()],
               "client": None, "server": None, "state": {}}, receive, send)
    return found["status"], [(k.decode("latin-1"), v.decode("latin-1")) for k, v in found["headers"]], found["body"]
