"""Plain grpcio with the message classes that tritonclient ships: every field can be set, sane or not."""
import grpc
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc import service_pb2_grpc

from lib import wait

NO_LIMIT = (("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1))


class Grpc:
    """Calls go out in the order in which they are made: the channel is connected from the start. Keep futures: one
    that is forgotten cancels its call."""

    def __init__(self, target, options=()):
        self.channel = grpc.insecure_channel(str(target), options=(*NO_LIMIT, *options))
        self.stub = service_pb2_grpc.GRPCInferenceServiceStub(self.channel)
        self.stub.ServerLive(pb.ServerLiveRequest(), timeout=wait.PATIENCE, wait_for_ready=True)

    def close(self):
        self.channel.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def infer(self, message, timeout=wait.PATIENCE, **kw):
        return self.stub.ModelInfer(message, timeout=timeout, **kw)


def parameter(value):
    p = pb.InferParameter()
    if isinstance(value, bool):
        p.bool_param = value
    elif isinstance(value, int):
        p.int64_param = value
    elif isinstance(value, float):
        p.double_param = value
    else:
        p.string_param = value
    return p


def request(model, inputs, outputs=(), parameters=None, id="", version="", raw=None):
    """inputs: (name, datatype, shape, {contents field: values} or None); raw: list of bytes; outputs: names or
    (name, parameters)."""
    m = pb.ModelInferRequest(model_name=model, model_version=version, id=id)
    for name, datatype, shape, contents in inputs:
        t = m.inputs.add(name=name, datatype=datatype, shape=shape)
        for field, values in (contents or {}).items():
            getattr(t.contents, field).extend(values)
    for output in outputs:
        name, params = output if isinstance(output, tuple) else (output, {})
        t = m.outputs.add(name=name)
        for key, value in params.items():
            t.parameters[key].CopyFrom(parameter(value))
    for key, value in (parameters or {}).items():
        m.parameters[key].CopyFrom(parameter(value))
    m.raw_input_contents.extend(raw or [])
    return m


def int32(model, values, raw=True, name="INPUT0", **kw):
    """A request with one INT32 vector."""
    import numpy as np

    shape = kw.pop("shape", [len(values)])
    if raw:
        return request(model, [(name, "INT32", shape, None)], raw=[np.array(values, "<i4").tobytes()], **kw)
    return request(model, [(name, "INT32", shape, {"int_contents": values})], **kw)
