"""Adaptive batching of models of MLServer: requests that the scheduler has joined become one, if their tensors fit together.

Requests that fit have the same inputs in the same order, with the same data types, parameters and dimensions but the first,
and ask for the same outputs. All others, and all of a batch whose answer cannot be divided, are answered one by one."""
import math
import sys

import orjson

UNLIKE = object()  # the key of a request that fits with no other


def _data(tensor):
    return getattr(tensor.data, "root", tensor.data)


def _plain(parameters):
    """Parameters as text; headers are each request's own."""
    found = {} if parameters is None else parameters.model_dump()
    found.pop("headers", None)
    return orjson.dumps(found, option=orjson.OPT_SORT_KEYS, default=str)


def _rows(tensor):
    """The first dimension, if the data are flat and of the size that the shape says; otherwise 0."""
    data = _data(tensor)
    if not tensor.shape or min(tensor.shape) < 1 or not isinstance(data, list) or len(data) != math.prod(tensor.shape):
        return 0
    return 0 if isinstance(data[0], list) else tensor.shape[0]


def key_of(payload):
    """What requests have in common that fit together."""
    rows = {_rows(tensor) for tensor in payload.inputs}
    if len(rows) != 1 or 0 in rows:
        return UNLIKE
    inputs = tuple((t.name, t.datatype, tuple(t.shape[1:]), _plain(t.parameters)) for t in payload.inputs)
    outputs = None if payload.outputs is None else tuple((o.name, _plain(o.parameters)) for o in payload.outputs)
    return inputs, outputs, _plain(payload.parameters)


def groups_of(payloads):
    """Lists of indices, each of requests that fit together."""
    found = {}
    for index, payload in enumerate(payloads):
        key = key_of(payload)
        found.setdefault((index,) if key is UNLIKE else key, []).append(index)
    return list(found.values())


def _with_data(tensor, shape, data):
    kind = type(tensor.data)
    return tensor.model_copy(update={"shape": shape, "data": kind(data) if hasattr(tensor.data, "root") else data})


def join(payloads):
    """One request with the rows of all, in their order."""
    inputs = []
    for tensors in zip(*(payload.inputs for payload in payloads)):
        data = [element for tensor in tensors for element in _data(tensor)]
        inputs.append(_with_data(tensors[0], [sum(t.shape[0] for t in tensors), *tensors[0].shape[1:]], data))
    return payloads[0].model_copy(update={"inputs": inputs})


def split(answer, payloads):
    """The answers to the requests; None: the answer has not a row for each of theirs."""
    counts = [payload.inputs[0].shape[0] for payload in payloads]
    total = sum(counts)
    if any(_rows(output) != total for output in answer.outputs):
        return None
    found, begin = [], 0
    for count in counts:
        outputs = []
        for output in answer.outputs:
            size = len(_data(output)) // total
            part = _data(output)[begin * size:(begin + count) * size]
            outputs.append(_with_data(output, [count, *output.shape[1:]], part))
        parameters = None if answer.parameters is None else answer.parameters.model_copy(deep=True)
        found.append(answer.model_copy(update={"outputs": outputs, "parameters": parameters}))
        begin += count
    return found


def batch_size(settings):
    """Requests of a batch; 0: the model does not batch."""
    try:
        is_on = settings.max_batch_size > 1 and settings.max_batch_time > 0
    except TypeError as e:
        print(f"max_batch_size and max_batch_time are not numbers: {e}", file=sys.stderr)
        return 0
    return settings.max_batch_size if is_on else 0
