"""Executions of the fault backend that last until a test ends them, however slow the machine is."""


class Hold:
    def __init__(self, folder):
        self.path = folder / "hold"
        self.path.touch()
        self.parameters = {"hold_file": str(self.path)}

    def end(self):
        self.path.unlink(missing_ok=True)
