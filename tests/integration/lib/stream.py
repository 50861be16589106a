"""Answers of ModelStreamInfer."""
import queue

import grpc
from tritonclient.grpc import service_pb2_grpc

from lib import grpcraw, wait

DECOUPLED = "model_transaction_policy { decoupled: true }"


def flag(response, key="triton_final_response"):
    p = response.infer_response.parameters
    return p[key].bool_param if key in p else None


def values(response):
    return list(memoryview(response.infer_response.raw_output_contents[0]).cast("i"))


class Stream:
    def __init__(self, target, metadata=(), timeout=wait.PATIENCE):
        self.channel = grpc.insecure_channel(target, options=grpcraw.NO_LIMIT)
        self.requests = queue.Queue()
        self.answers = service_pb2_grpc.GRPCInferenceServiceStub(self.channel).ModelStreamInfer(
            iter(self.requests.get, None), metadata=metadata, timeout=timeout)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.requests.put(None)
        self.answers.cancel()
        self.channel.close()

    def send(self, *requests):
        [self.requests.put(r) for r in requests]

    def take(self, count):
        return [next(self.answers) for _ in range(count)]

    def end(self):
        self.requests.put(None)
        return list(self.answers)
