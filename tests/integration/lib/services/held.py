"""What an etcd answers, held back by a test: a proxy that passes gRPC calls on as bytes."""
import threading
from concurrent import futures

import grpc

# A RangeRequest of all keys of a mesh: key "mesh/", and a range_end.
FIRST_PAGE = b"\x0a\x05mesh/\x12"


class Held(grpc.GenericRpcHandler):
    """Between clients of `port` and the etcd at `target`. `pages` and `changes` let through, while they are set, what servers read at their start, and
    what watches bring; `is_asked`: somebody waits for pages."""

    def __init__(self, target):
        self.pages, self.changes, self.is_asked = threading.Event(), threading.Event(), threading.Event()
        self.pages.set()
        self.changes.set()
        self.to = grpc.insecure_channel(target)
        self.server = grpc.server(futures.ThreadPoolExecutor(32), handlers=[self])
        self.port = self.server.add_insecure_port("127.0.0.1:0")
        self.server.start()

    def close(self):
        self.pages.set()
        self.changes.set()
        self.server.stop(0).wait()
        self.to.close()

    def service(self, details):
        method = details.method
        if method.endswith(("/Watch", "/LeaseKeepAlive")):
            return grpc.stream_stream_rpc_method_handler(lambda requests, context: self.pass_stream(method, requests, context))
        return grpc.unary_unary_rpc_method_handler(lambda request, context: self.pass_call(method, request, context))

    def pass_call(self, method, request, context):
        if method.endswith("/Range") and request.startswith(FIRST_PAGE) and not self.pages.is_set():
            self.is_asked.set()
            self.pages.wait()
        try:
            return self.to.unary_unary(method)(request)
        except grpc.RpcError as e:
            context.abort(e.code(), e.details())

    def pass_stream(self, method, requests, context):
        answers = self.to.stream_stream(method)(requests)
        context.add_callback(answers.cancel)
        try:
            for answer in answers:
                self.changes.wait()
                yield answer
        except grpc.RpcError as e:
            context.abort(e.code(), e.details())
