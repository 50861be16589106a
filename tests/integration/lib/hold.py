"""Executions and loads of the fault backend that last until a test ends them, however slow the machine is."""
from lib import grpcraw, wait
from lib.metrics import value


class Hold:
    def __init__(self, folder):
        self.path = folder / "hold"
        self.path.touch()
        self.parameters = {"hold_file": str(self.path)}
        self.loading = {"open_hold_file": str(self.path)}

    def wait_held(self):
        """Until an execution is under way."""
        wait.until(self.path.with_suffix(".held").exists, "an execution to be held")

    def requests(self, server, client, model, count):
        """Futures of `count` requests: one runs on the model's one instance until the hold ends, and the others wait."""
        def ask(i):
            return client.stub.ModelInfer.future(grpcraw.int32(model, [i], parameters={} if i else self.parameters), timeout=wait.PATIENCE)
        first = ask(0)
        self.wait_held()
        futures = [first, *map(ask, range(1, count))]
        wait.until(lambda: value(server, "nv_inference_pending_request_count", model=model) == count - 1, "the requests to be there")
        return futures

    def end(self):
        self.path.unlink(missing_ok=True)
