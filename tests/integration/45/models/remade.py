"""For each input that is sent an output of the same number: a new array with its elements, which is not contiguous."""
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [pb_utils.InferenceResponse([
            pb_utils.Tensor(tensor.name().replace("INPUT", "OUTPUT"), np.array(tensor.as_numpy().T, order="C").T)
            for tensor in request.inputs()]) for request in requests]
