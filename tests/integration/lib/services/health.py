"""The health service of gRPC."""
import contextlib
import threading

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from lib import wait

Status = health_pb2.HealthCheckResponse
SERVING, NOT_SERVING = Status.SERVING, Status.NOT_SERVING


@contextlib.contextmanager
def watched(server, service=""):
    """The list of states that a watcher of the health service has heard so far."""
    heard = []
    with grpc.insecure_channel(server.url("grpc")) as channel:
        watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(service=service))

        def hear():
            with contextlib.suppress(grpc.RpcError):
                for answer in watch:
                    heard.append(answer.status)

        thread = threading.Thread(target=hear, daemon=True)
        thread.start()
        wait.until(lambda: heard, "the first state")
        yield heard
        watch.cancel()
        thread.join()
