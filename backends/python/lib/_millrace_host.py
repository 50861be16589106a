"""Loads a model for the python backend, and turns executions into calls of its methods.

The backend calls open_model once, then, of what it returns, `signature`, `settle` and `instance`, and of an instance
`execute` and `close`."""
import asyncio
import importlib
import importlib.util
import inspect
import json
import os
import sys
import threading
import traceback

import _millrace_calls
from _millrace_calls import current, packed, running

try:
    import triton_python_backend_utils as pb_utils
except ModuleNotFoundError as e:  # numpy
    raise ModuleNotFoundError(f"the interpreter {sys.executable} cannot run Python models: {e}") from None

import _millrace_iterations  # which needs it

FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL
Response, part, new = pb_utils.InferenceResponse, pb_utils._part, object.__new__
INTERNAL = -7
TRACE_MAX = 1500
# Statuses of the backend's interface, by the codes of TritonError.
STATUS = (-1, INTERNAL, -3, -2, -5, -6, -4, -8)
KINDS = ("AUTO", "GPU", "CPU", "MODEL")
IS_DECOUPLED, DYNAMIC_BATCHING = 64, 128  # of a signature


def open_model(desc, services):
    pb_utils._services, pb_utils._version_dir = services, desc["version_dir"]
    _millrace_calls.services, _millrace_calls.pb_utils = services, pb_utils
    return Model(desc, services)


def end_of(trace):
    """As much of a traceback as a line of the log has room for. What was raised is at the end."""
    return trace if len(trace) <= TRACE_MAX else "..." + trace[-TRACE_MAX:]


def text_of(exception):
    """One line; the traceback goes to the log."""
    return f"{type(exception).__name__}: {exception}"


class Model:
    """A model version: its module."""

    def __init__(self, desc, services):
        self.name, self.version, self.services, self.desc = desc["name"], desc["version"], services, desc
        self.config = json.loads(desc["config"])
        self.input_names, self.output_names, self.output_index = [], [], {}
        self.shows_traces = desc["settings"].get("show_tracebacks", "") in ("1", "true", "on")
        self.kind = self._class()
        self.streams = getattr(self.kind, "streams", True)  # it may give several answers, if it is decoupled
        self.has_completed = desc["completes"] and hasattr(self.kind, "auto_complete_config")
        if self.has_completed:
            helper = pb_utils.ModelConfig(self.config)
            completed = self._guard("auto_complete_config", self.kind.auto_complete_config, helper)
            if not isinstance(completed, pb_utils.ModelConfig):
                raise TypeError(f"auto_complete_config of model '{self.name}' returns {type(completed).__name__}, not the "
                                "configuration that it was given")
            self.config = completed.as_dict()
        # Executions of an instance that may be open at once: those of a decoupled model go on after `execute`.
        self.is_iterative = bool(self.config.get("sequence_batching", {}).get("iterative_sequence"))
        is_decoupled = self.streams and pb_utils.using_decoupled_model_transaction_policy(self.config)
        self.max_pending = getattr(self.kind, "millrace_max_pending", 32) if is_decoupled or self.is_iterative else 1

    def _guard(self, what, function, *args):
        try:
            return function(*args)
        except (Exception, SystemExit) as e:
            self.services["log"](0, end_of(traceback.format_exc()))
            raise RuntimeError(f"{what} of model '{self.name}' failed: {text_of(e)}") from e

    def _class(self):
        model_dir, version_dir, file = (self.desc[k] for k in ("model_dir", "version_dir", "file"))
        for folder in (model_dir, version_dir):
            sys.path.append(folder)
        if not os.path.exists(file):
            raise FileNotFoundError(f"model '{self.name}' has no file {os.path.relpath(file, model_dir)}")
        if os.path.basename(file) == "model-settings.json":
            import _millrace_mlserver

            return self._guard("the file", _millrace_mlserver.runtime, file, self)
        stem, ending = os.path.splitext(os.path.relpath(file, model_dir))
        if ending == ".py" and os.sep in stem:  # <version>/model.py is the module <version>.model
            module = self._guard("the file", importlib.import_module, stem.replace(os.sep, "."))
        else:
            spec = importlib.util.spec_from_file_location("model", file)
            module = importlib.util.module_from_spec(spec)
            self._guard("the file", spec.loader.exec_module, module)
        kind = getattr(module, "TritonPythonModel", None)
        if kind is None or not hasattr(kind, "execute"):
            raise AttributeError(f"{os.path.basename(file)} of model '{self.name}' has no class TritonPythonModel with a "
                                 "method execute")
        return kind

    def signature(self):
        """None: that of the configuration. Otherwise inputs and outputs as (name, data type, dims, is optional), whether they
        have a batch dimension, the largest batch, and what auto_complete_config says about the scheduling."""
        if hasattr(self.kind, "signature"):
            return self.kind.signature
        if not self.has_completed or not (self.config.get("input") and self.config.get("output")):
            return None
        batches = self.config.get("max_batch_size", 0) > 0
        lead, lists = [-1] if batches else [], []
        for kind, more in zip(("input", "output"), sequence_io(self.config.get("sequence_batching", {}))):
            entries = {e["name"]: e for e in [*more, *self.config[kind]]}  # a state may be an output of clients as well
            lists.append([(name, pb_utils._code_named(e["data_type"]),
                           [*lead, *map(int, e.get("reshape", {}).get("shape", e["dims"]))], bool(e.get("optional")))
                          for name, e in entries.items()])
        flags = IS_DECOUPLED if pb_utils.using_decoupled_model_transaction_policy(self.config) else 0
        flags |= DYNAMIC_BATCHING if "dynamic_batching" in self.config else 0
        return (*lists, 1 if batches else 0, self.config.get("max_batch_size", 0), flags)

    def settle(self, inputs, outputs):
        self.input_names = [name for name, _ in inputs]
        self.output_names = [name for name, _ in outputs]
        self.output_index = {name: i for i, name in enumerate(self.output_names)}

    def instance(self, index, kind, device, name):
        for group in self.config.get("instance_group", ()):  # its number in its group
            count = group.get("count") or 1
            if index < count:
                break
            index -= count
        return Instance(self, f"{name}_{index}", KINDS[kind], device)


def sequence_io(batching):
    """What sequence_batching adds to the inputs and to the outputs, as entries of the configuration."""
    inputs, outputs = [], []
    for entry in batching.get("control_input", ()):
        control = entry["control"][0]
        kind = ("TYPE_INT32" if control["int32_false_true"] else "TYPE_FP32" if control["fp32_false_true"] else
                "TYPE_BOOL" if control["bool_false_true"] else control["data_type"])
        inputs.append({"name": entry["name"], "data_type": kind, "dims": [1]})
    for state in batching.get("state", ()):
        for key, entries in ("input_name", inputs), ("output_name", outputs):
            entries.append({"name": state[key], "data_type": state["data_type"], "dims": state["dims"]})
    return inputs, outputs


def current_loop():
    """The event loop of this thread from now on, or None, where the process is not allowed to have one."""
    try:
        loop = asyncio.new_event_loop()
    except OSError:
        return None
    asyncio.set_event_loop(loop)
    return loop


class Instance:
    def __init__(self, model, name, kind, device):
        self.model, self.name, self.loop, self.events, self.events_thread = model, name, current_loop(), None, None
        self.object = model._guard("TritonPythonModel", model.kind)
        if hasattr(self.object, "initialize"):
            model._guard("initialize", self.object.initialize, {
                "model_config": json.dumps(model.config), "model_instance_kind": kind, "model_instance_name": name,
                "model_instance_device_id": str(device), "model_repository": model.desc["model_dir"],
                "model_version": str(model.version), "model_name": model.name})
        self.run = self._first
        self.iterations = _millrace_iterations.Iterations(self) if model.is_iterative else None

    def close(self):
        if self.iterations:
            self.iterations.close()
        if hasattr(self.object, "finalize"):
            self.object.finalize()
        if self.events:
            self.events.call_soon_threadsafe(self.events.stop)
            self.events_thread.join()
            self.events.close()
        if self.loop:
            self.loop.close()

    def _first(self, requests):
        """The first call of `execute`. All are on one thread, whose event loop is that of `initialize`: in Triton both run
        on the main thread."""
        asyncio.set_event_loop(self.loop)
        self.run = self.object.execute
        return self.run(requests)

    def execute(self, handle, raw, wanted, is_decoupled):
        """Results of the requests, or None: later, by `finish`."""
        run = run_of(self, handle, wanted, is_decoupled, len(raw))
        requests = list(map(pb_utils._received_request, run.replies, raw))
        if self.iterations:
            self.iterations.add(requests)
            del requests
            return run.end_execute()
        before = current.set(run)
        try:
            answers = self.run(requests)
            if type(answers) is not list and inspect.iscoroutine(answers):
                if is_decoupled:
                    asyncio.run_coroutine_threadsafe(self._later(run, requests, answers), self._events())
                    return run.end_execute()
                answers = self._await(answers)
            if answers is not None:
                self._take(run, requests, answers)
        except BaseException as e:  # SystemExit as well: no model ends the process by an exception
            self._fail(requests, e)
        finally:
            current.reset(before)
        if run.open:
            self._end(requests)
        del requests
        return run.end_execute()

    def _fail(self, requests, e):
        message = self._message(e)
        for request in requests:
            if not request._reply.is_final:
                request._reply.fail(INTERNAL, message)

    def _end(self, requests):
        """`execute` has ended: nothing more comes for a request without a response sender."""
        for request in requests:
            reply = request._reply
            if not reply.is_final and not reply.has_sender:
                reply.fail(INTERNAL, f"execute of model '{self.model.name}' gave no response to the request, and took no "
                                     "response sender")

    def _await(self, coroutine):
        if self.loop is None:
            self.loop = asyncio.new_event_loop()
        return self.loop.run_until_complete(coroutine)

    def _events(self):
        """The event loop of a decoupled model, which runs beside `execute`."""
        if self.events is None:
            self.events = asyncio.new_event_loop()
            self.events_thread = threading.Thread(target=self.events.run_forever, name="execute", daemon=True)
            self.events_thread.start()
        return self.events

    async def _later(self, run, requests, coroutine):
        """The coroutine of a decoupled model, beside others."""
        current.set(run)
        try:
            self._take_none(run, await coroutine)
        except BaseException as e:
            self._fail(requests, e)
        self._end(requests)

    def _take_none(self, run, answers):
        if answers is not None:
            raise pb_utils.TritonModelException(
                f"execute of model '{self.model.name}', which is decoupled, returned {type(answers).__name__}: its "
                "responses go through response senders")

    def _take(self, run, requests, answers):
        if run.is_decoupled:
            self._take_none(run, answers)
        results, count = run.results, 0
        try:
            for reply, answer in zip(run.replies, self.answers_of(requests, answers)):
                if type(answer) is Response and not (reply.has_sender or answer._parameters):
                    results[reply.index], reply.is_final = run.outputs(answer), True  # as `send` does, with fewer steps
                    count += 1
                elif answer is not None:
                    reply.send(answer, FINAL)
        finally:
            run.ended(count)

    def answers_of(self, requests, answers):
        """One for each request, None: it has none now. Of a decoupled model there are none."""
        run = requests[0]._reply.run
        if run.is_decoupled or answers is None:
            self._take_none(run, answers)
            return [None] * len(requests)
        if len(answers) != len(requests):
            raise pb_utils.TritonModelException(f"execute of model '{self.model.name}' returned {len(answers)} responses "
                                                f"to {len(requests)} requests")
        return answers

    def enter(self, run):
        """Calls of other models on this thread are made for the execution, until `leave`."""
        return current.set(run)

    def leave(self, before):
        current.reset(before)

    def _message(self, e):
        trace = "".join(traceback.format_exception(type(e), e, e.__traceback__))
        self.model.services["log"](0, f"execute of instance {self.name}: {end_of(trace)}")
        text = f"Failed to process the request(s) for model instance '{self.name}', message: {text_of(e)}"
        if self.model.shows_traces:  # as Triton writes them; the end may be cut
            frames = reversed(traceback.extract_tb(e.__traceback__))
            text += "\n\nAt:" + "".join(f"\n  {f.filename}({f.lineno}): {f.name}" for f in frames)
        return text


# Of all executions, held for a few instructions. A thread that has it may collect garbage, and thereby end another execution.
lock = threading.RLock()


def run_of(instance, handle, wanted, is_decoupled, count):
    """A Run and its replies. Not by their types, as that takes twice the time."""
    run, kind = new(Run), OpenReply if is_decoupled or instance.iterations else Reply
    run.instance, run.handle, run.wanted, run.is_decoupled = instance, handle, wanted, is_decoupled
    run.results, run.replies, run.open, run.is_executing = [None] * count, [], count, True
    for i in range(count):
        reply = new(kind)
        reply.run, reply.index, reply.is_final, reply.has_sender = run, i, False, False
        run.replies.append(reply)
    running.append(run)
    return run


class Run:
    """One execution. `open`: requests that are not final."""

    __slots__ = ("instance", "handle", "wanted", "is_decoupled", "replies", "results", "open", "is_executing")

    def wanted_names(self):
        names = self.instance.model.output_names
        return [name for name, flag in zip(names, self.wanted) if flag]

    def outputs(self, response):
        """All outputs that are wanted, in the order of the model, as the backend takes them; (status, message)."""
        error = response._error
        if error is not None:
            code = error.code()
            return (STATUS[code] if 0 <= code < len(STATUS) else INTERNAL, error.message())
        index_of, wanted = self.instance.model.output_index, self.wanted
        parts = [None] * len(wanted)
        for tensor in response._tensors:
            index = index_of.get(tensor._name)
            if index is None:
                return (INTERNAL, f"unexpected inference output '{tensor._name}' for model '{self.instance.model.name}'")
            if wanted[index]:
                parts[index] = part(index, tensor)
        if all(parts):
            return parts
        for index, found in enumerate(parts):
            if found is None and wanted[index]:
                return (INTERNAL, f"output '{self.instance.model.output_names[index]}' is missing in a response of "
                                  f"model '{self.instance.model.name}'")
        return [p for p in parts if p is not None]

    def ended(self, count):
        with lock:
            self.open -= count
            if self.open or self.is_executing:
                return
        self._finish()

    def _finish(self):
        handle, self.handle = self.handle, None
        running.remove(self)
        results = None if self.is_decoupled else self.results
        self.results = self.replies = None
        self.instance.model.services["finish"](handle, results)

    def end_execute(self):
        with lock:
            self.is_executing = False
            if self.open:
                self.replies = None  # what dropped all references to a request is noticed by its reply
                return None
        self.handle = self.replies = None
        running.remove(self)
        return () if self.is_decoupled else self.results


class Reply:
    """What became of one request."""

    __slots__ = ("run", "index", "is_final", "has_sender", "__weakref__")

    def take_sender(self):
        self.has_sender, self.__class__ = True, OpenReply

    def is_cancelled(self):
        run = self.run
        return not self.is_final and run.handle is not None and run.instance.model.services["is_cancelled"](
            run.handle, self.index)

    def send(self, response, flags):
        if self.is_final:
            raise pb_utils.TritonModelException("Unable to send response. Response sender has been closed.")
        if response is None and not flags & FINAL:
            raise pb_utils.TritonModelException("Inference Response object must be provided when the response flags is "
                                                "set to zero.")
        if response is not None and not isinstance(response, pb_utils.InferenceResponse):
            raise pb_utils.TritonModelException(f"a response is an InferenceResponse, got {type(response).__name__}")
        if self.run.is_decoupled:
            self._respond(response, flags)
        elif response is None:
            raise pb_utils.TritonModelException("a model that is not decoupled sends one response, before or with the flag "
                                                "TRITONSERVER_RESPONSE_COMPLETE_FINAL")
        else:
            self._end(self._only(response))
        if self.is_final and not flags & FINAL:
            self.__class__ = EndedReply

    def _only(self, response):
        """Its outputs, as `outputs` of the run; its parameters are noted."""
        run = self.run
        outputs = run.outputs(response)
        if response._parameters and isinstance(outputs, list):
            try:
                run.instance.model.services["parameters"](run.handle, self.index, packed(response._parameters))
            except RuntimeError as e:
                return (INTERNAL, str(e))
        return outputs

    def _respond(self, response, flags):
        run, services = self.run, self.run.instance.model.services
        outputs = None if response is None else run.outputs(response)
        if isinstance(outputs, tuple):
            services["fail"](run.handle, self.index, *outputs)
            flags = FINAL
        else:
            parameters = packed(response._parameters) if response is not None and response._parameters else None
            services["respond"](run.handle, self.index, outputs, parameters, flags & FINAL)
        if flags & FINAL:
            self.is_final = True
            run.ended(1)

    def fail(self, status, message):
        if self.run.is_decoupled:
            self.run.instance.model.services["fail"](self.run.handle, self.index, status, message)
            self._end(None)
        else:
            self._end((status, message))

    def _end(self, result):
        self.is_final = True
        self.run.results[self.index] = result
        self.run.ended(1)


class EndedReply(Reply):
    """What had an error, or the one response of a model that is not decoupled, without the flag for the last one: that may
    follow. What comes between an error and the flag is dropped, as the client's request is over."""

    __slots__ = ()

    def send(self, response, flags):
        if response is not None and not self.run.is_decoupled:
            raise pb_utils.TritonModelException("a model that is not decoupled sends one response")
        if flags & FINAL:
            self.__class__ = Reply


class OpenReply(Reply):
    """One that may come after `execute`, or never."""

    __slots__ = ()

    def __del__(self):
        if not self.is_final:
            self.fail(INTERNAL, f"model '{self.run.instance.model.name}' dropped the request without a final response")
