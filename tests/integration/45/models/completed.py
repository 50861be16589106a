"""Says all that auto_complete_config can say, in the way of Triton's example."""
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    @staticmethod
    def auto_complete_config(auto_complete_model_config):
        config = auto_complete_model_config.as_dict()
        names = {entry["name"] for kind in ("input", "output") for entry in config[kind]}
        assert config["max_batch_size"] == 0
        if "INPUT0" not in names:
            auto_complete_model_config.add_input({"name": "INPUT0", "data_type": "TYPE_INT32", "dims": [1]})
            auto_complete_model_config.add_input({"name": "EXTRA", "data_type": "TYPE_FP32", "dims": [-1], "optional": True})
        if "OUTPUT0" not in names:
            auto_complete_model_config.add_output({"name": "OUTPUT0", "data_type": "TYPE_INT32", "dims": [1]})
        auto_complete_model_config.set_max_batch_size(6)
        auto_complete_model_config.set_dynamic_batching()
        auto_complete_model_config.set_model_transaction_policy({"decoupled": True})
        return auto_complete_model_config

    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            given = pb_utils.get_input_tensor_by_name(request, "EXTRA")
            count = int(request.inputs()[0].as_numpy()[0, 0])
            for i in range(count):
                value = i if given is None else int(given.as_numpy().sum())
                sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", np.array([[value]], np.int32))]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
