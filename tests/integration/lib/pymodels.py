"""Models in Python: files of a test, run by the interpreter of the tests, and folders of MLServer."""
import json
import shutil
import sys
from pathlib import Path

from lib import repo

# An interpreter with the package `mlserver` (tools/setup --test).
MLSERVER = repo.TOP / "build" / "venv-mlserver" / "bin" / "python3"
RUNTIMES = sorted((Path(__file__).parent.parent / "45" / "mlserver").glob("*.py"))


def add(models, name, file, **kw):
    """A model whose model.py is `file`, a path or the text itself; kw go to repo.config()."""
    data = file.read_bytes() if isinstance(file, Path) else file
    return repo.add(models, name, backend="python", files={"1/model.py": data}, **kw)


def add_mlserver(folder, implementation, **settings):
    """model-settings.json in the folder, and the modules of models."""
    folder.mkdir(parents=True, exist_ok=True)
    for file in RUNTIMES:
        shutil.copy(file, folder)
    (folder / "model-settings.json").write_text(json.dumps({"implementation": implementation, **settings}))
    return folder


def options(python=sys.executable):
    return [f"--python={python}"]
