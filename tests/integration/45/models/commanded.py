"""Executes the command in its input: all the ways in which a model can fail."""
import ctypes
import sys

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [self.one(request.inputs()[0].as_numpy()[0].decode()) for request in requests]

    def one(self, word):
        if word == "raise":
            raise ValueError("no good")
        if word.startswith("long "):  # of which the answer has the beginning
            pad, count = word.split()[1:]
            return pb_utils.InferenceResponse(error=pb_utils.TritonError("x" * int(pad) + "\u00e4" * int(count)))
        if word == "raise surrogate":  # as os.fsdecode makes them of names that are not UTF-8
            pb_utils.Logger.log_info("file \udcff")
            raise ValueError("no file \udcff")
        if word == "surrogate":
            return pb_utils.InferenceResponse(error=pb_utils.TritonError("no file \udcff"))
        if word == "nul":
            return pb_utils.InferenceResponse(error=pb_utils.TritonError("no file\0there"))
        if word == "exit":
            sys.exit(3)
        if word == "crash":
            ctypes.string_at(0)
        if word == "error":
            return pb_utils.InferenceResponse(error=pb_utils.TritonError("mine", pb_utils.TritonError.NOT_FOUND))
        if word == "none":
            return None
        if word == "name":
            return pb_utils.InferenceResponse([pb_utils.Tensor("OTHER", np.zeros(1))])
        if word == "type":
            return pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", np.zeros(1))])
        if word == "missing":
            return pb_utils.InferenceResponse([])
        return pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", np.array([word.upper()], np.object_))])
