"""Fails with the code that its input names."""
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        words = [request.inputs()[0].as_numpy()[0].decode() for request in requests]
        return [pb_utils.InferenceResponse(error=pb_utils.TritonError(f"it is {w}", getattr(pb_utils.TritonError, w))) for w in words]
