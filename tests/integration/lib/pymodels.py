"""Models in Python: files of a test, run by the interpreter of the tests."""
import sys
from pathlib import Path

from lib import repo


def add(models, name, file, **kw):
    """A model whose model.py is `file`, a path or the text itself; kw go to repo.config()."""
    data = file.read_bytes() if isinstance(file, Path) else file
    return repo.add(models, name, backend="python", files={"1/model.py": data}, **kw)


def options():
    return [f"--python={sys.executable}"]
