"""Asks seq_sum with the id and the flags of its own request."""
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [self.one(request) for request in requests]

    def one(self, request):
        number = pb_utils.Tensor("INPUT", pb_utils.get_input_tensor_by_name(request, "INPUT").as_numpy())
        answer = pb_utils.InferenceRequest(model_name="seq_sum", requested_output_names=["OUTPUT"], inputs=[number],
                                           correlation_id=request.correlation_id(), flags=request.flags()).exec()
        if answer.has_error():
            return pb_utils.InferenceResponse(error=pb_utils.TritonError(answer.error().message()))
        return pb_utils.InferenceResponse([pb_utils.get_output_tensor_by_name(answer, "OUTPUT")])
