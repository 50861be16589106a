"""Repository control by a program: index rows, loads and unloads over REST and gRPC alike."""
import base64
import json

import grpc
from tritonclient.grpc import service_pb2 as pb

from lib import wait
from lib.grpcraw import Grpc
from lib.rest import Rest


class Control:
    """REST, keeping one connection."""

    def __init__(self, server):
        self.rest = Rest(server.http, timeout=wait.PATIENCE)

    def close(self):
        self.rest.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def load(self, model, config=None, files=None, **parameters):
        """The Reply; config: dict or text; files: {"1/model.onnx": bytes}."""
        if config is not None:
            parameters["config"] = config if isinstance(config, str) else json.dumps(config)
        for path, data in (files or {}).items():
            parameters[f"file:{path}"] = base64.b64encode(data).decode()
        return self.rest.post(f"/v2/repository/models/{model}/load", {"parameters": parameters} if parameters else b"")

    def unload(self, model, **parameters):
        return self.rest.post(f"/v2/repository/models/{model}/unload", {"parameters": parameters} if parameters else b"")

    def index(self, model=None, ready=None):
        """Rows of the index; of one model when it is named."""
        rows = self.rest.post("/v2/repository/index", b"" if ready is None else {"ready": ready}).ok().json()
        return rows if model is None else [r for r in rows if r["name"] == model]

    def states(self, model):
        return {r.get("version"): r.get("state") for r in self.index(model)}

    def ready(self):
        return self.rest.get("/v2/health/ready").status == 200

    def model_ready(self, model):
        return self.rest.get(f"/v2/models/{model}/ready").status == 200

    def infer(self, model, values=(1, 2), **fields):
        return self.rest.infer(model, [("INPUT0", "INT32", [len(values)], list(values))], **fields)

    def answer(self, model, values=(1, 2), **fields):
        """(data of OUTPUT0, model_version)"""
        document = self.infer(model, values, **fields).ok().json()
        return document["outputs"][0]["data"], document["model_version"]

    def stats(self, model):
        return self.rest.stats(model)


class GrpcControl:
    """The same over gRPC; errors are returned as (code name, text), None is success."""

    def __init__(self, server):
        self.client = Grpc(server.url("grpc"))

    def close(self):
        self.client.close()

    def _call(self, method, message):
        try:
            getattr(self.client.stub, method)(message, timeout=wait.PATIENCE)
        except grpc.RpcError as e:
            return e.code().name, e.details()
        return None

    @staticmethod
    def _load(model, config=None, files=None, **parameters):
        m = pb.RepositoryModelLoadRequest(model_name=model)
        if config is not None:
            m.parameters["config"].string_param = config if isinstance(config, str) else json.dumps(config)
        for path, data in (files or {}).items():
            m.parameters[f"file:{path}"].bytes_param = data
        for key, value in parameters.items():
            m.parameters[key].string_param = value
        return m

    def load(self, *args, **kw):
        return self._call("RepositoryModelLoad", self._load(*args, **kw))

    def begin_load(self, *args, **kw):
        """A grpc.Future of the load."""
        return self.client.stub.RepositoryModelLoad.future(self._load(*args, **kw), timeout=wait.PATIENCE)

    def unload(self, model):
        return self._call("RepositoryModelUnload", pb.RepositoryModelUnloadRequest(model_name=model))
