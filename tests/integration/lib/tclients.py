"""NVIDIA's tritonclient in its four kinds with one interface, so that one table of tests serves all of them."""
import asyncio

import numpy as np
import tritonclient.grpc
import tritonclient.grpc.aio
import tritonclient.http
import tritonclient.http.aio
from tritonclient.utils import InferenceServerException

KINDS = ("http", "grpc", "http.aio", "grpc.aio")


class Triton:
    """call(name, ...) is a call of the client's own method; what follows hides the differences."""

    def __init__(self, kind, server, **options):
        self.kind = kind
        self.is_grpc = kind.startswith("grpc")
        self.is_aio = kind.endswith("aio")
        self.module = tritonclient.grpc if self.is_grpc else tritonclient.http
        client_module = self.module.aio if self.is_aio else self.module
        url = server.url("grpc" if self.is_grpc else "http")
        self.loop = asyncio.new_event_loop() if self.is_aio else None
        if self.is_aio:
            async def make():
                return client_module.InferenceServerClient(url, **options)

            self.client = self.loop.run_until_complete(make())
        else:
            self.client = client_module.InferenceServerClient(url, **options)

    def call(self, method, *args, **kw):
        result = getattr(self.client, method)(*args, **kw)
        return self.loop.run_until_complete(result) if self.is_aio else result

    def close(self):
        self.call("close")
        if self.loop:
            self.loop.close()

    def document(self, method, *args, **kw):
        """An answer as a dict."""
        if self.is_grpc:
            kw["as_json"] = True
        return self.call(method, *args, **kw)

    def input(self, name, dtype, array, **kw):
        """dtype: a lib.dtypes.DType; kw reach set_data_from_numpy (binary_data, for http)."""
        i = self.module.InferInput(name, list(array.shape), dtype.name)
        i.set_data_from_numpy(array, **({} if self.is_grpc else kw))
        return i

    def output(self, name, **kw):
        if self.is_grpc:
            kw.pop("binary_data", None)
        return self.module.InferRequestedOutput(name, **kw)

    def infer(self, model, inputs, **kw):
        return self.call("infer", model, inputs, **kw)

    def int32(self, values, name="INPUT0"):
        from lib.dtypes import BY_NAME

        return self.input(name, BY_NAME["INT32"], np.array(values, np.int32))


def error_of(function, *args, **kw):
    """The InferenceServerException that a call ends with."""
    try:
        result = function(*args, **kw)
    except InferenceServerException as e:
        return e
    raise AssertionError(f"no error but {result!r}")
