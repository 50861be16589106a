"""What a model asks of the server: other models' answers, their control, metrics."""


def _absent(what):
    import triton_python_backend_utils as pb_utils

    raise pb_utils.TritonModelException(f"{what} is not there yet")


def run(request, decoupled, execution_timeout):
    _absent("a request of one model to another (BLS)")


def load_model(model_name, files=None, config=None):
    _absent("load_model")


def unload_model(model_name, unload_dependents=False):
    _absent("unload_model")


def is_model_ready(model_name, model_version=""):
    _absent("is_model_ready")


class Metric:
    def __init__(self, *_args, **_options):
        _absent("Metric")


class MetricFamily:
    COUNTER, GAUGE, HISTOGRAM = range(3)

    def __init__(self, *_args, **_options):
        _absent("MetricFamily")
