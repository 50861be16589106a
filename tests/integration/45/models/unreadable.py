"""A text for each request; one that cannot be read for those with 0."""
import numpy as np
import triton_python_backend_utils as pb


class Unreadable:
    def __str__(self):
        raise ValueError("it has no text")


class TritonPythonModel:
    def execute(self, requests):
        numbers = [pb.get_input_tensor_by_name(r, "INPUT0").as_numpy()[0][0] for r in requests]
        return [pb.InferenceResponse([pb.Tensor("OUTPUT0", np.array([[str(n) if n else Unreadable()]], object))]) for n in numbers]
