"""Libraries with operators of workflows: the one of docs/operators.md, and what ends the start."""
import re
import subprocess

from lib import repo, wait
from lib.repo import TOP
from lib.server import Server


def build(folder):
    """The library whose source is in the documentation."""
    source = re.search(r"```c\n(.*?)```", (TOP / "docs/operators.md").read_text(), re.S)[1]
    folder.mkdir()
    (folder / "demo.c").write_text(source)
    subprocess.run(["cc", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", f"-I{TOP}/include", folder / "demo.c",
                    "-o", folder / "libmillrace_op_demo.so"], check=True, timeout=wait.PATIENCE)
    return folder


def fails(tmp_path, *dirs):
    models = tmp_path / "models"
    models.mkdir(exist_ok=True)
    server = Server(tmp_path / "fails", [models], *[f"--op-directory={d}" for d in dirs])
    assert server.wait_exit() == 1
    return server.err()


def test_a_library_of_ones_own(tmp_path):
    ops = build(tmp_path / "ops")
    models = tmp_path / "models"
    repo.add(models, "m")
    server = Server(tmp_path / "run", [models], f"--op-directory={ops}")
    try:
        server.wait_ready()
        server.stop()
    finally:
        server.end_anyhow()
    # the same operators twice
    assert "there is another op 'demo.invert'" in fails(tmp_path, ops, ops)


def test_folders_and_libraries_that_cannot_be_read(tmp_path):
    assert f"--op-directory {tmp_path}/none: No such file or directory" in fails(tmp_path, tmp_path / "none")
    (tmp_path / "ops").mkdir()
    (tmp_path / "ops" / "libmillrace_op_text.so").write_text("no library\n")
    assert "libmillrace_op_text.so" in fails(tmp_path, tmp_path / "ops")
