"""Executions and loads of the fault backend that last until a test ends them, however slow the machine is."""
from lib import wait


class Hold:
    def __init__(self, folder):
        self.path = folder / "hold"
        self.path.touch()
        self.parameters = {"hold_file": str(self.path)}
        self.loading = {"open_hold_file": str(self.path)}

    def wait_held(self):
        """Until an execution is under way."""
        wait.until(self.path.with_suffix(".held").exists, "an execution to be held")

    def end(self):
        self.path.unlink(missing_ok=True)
