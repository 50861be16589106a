"""Follows docs/write-a-backend.md: writes its files, compiles them against an installed tree, serves and queries them.

A block of code belongs to the words before it: a file's name writes that file, "In place of `execute`:" and "In the table:"
change scale.c, "One more line in `FILE`:" extends a file. Commands are blocks without a language; those with `$ ` show
what they print. Each section on its own changes the text before "Errors".
"""
import os
import re
import shlex
import shutil
import subprocess

import pytest

from lib import sdk, wait
from lib.repo import TOP
from lib.server import BIN, Server, clean_environment

BUILD = BIN.parent.parent
PAGE = TOP / "docs" / "write-a-backend.md"
BLOCK = re.compile(r"(?P<words>[^\n]*)\n\n```(?P<language>\w*)\n(?P<code>.*?)^```$", re.M | re.S)
SERVE = "$PREFIX/bin/millrace serve "

pytestmark = pytest.mark.skipif(not (BUILD / "cmake_install.cmake").exists() or not shutil.which("cmake") or not shutil.which("cc"),
                                reason="no build folder, or no compiler")


def sections():
    """{title: [(words before it, language, code)]}"""
    parts = re.split(r"^## (.*)\n", PAGE.read_text(), flags=re.M)
    return {title: [m.groups() for m in BLOCK.finditer(text)] for title, text in zip(parts[1::2], parts[2::2])}


@pytest.fixture(scope="module")
def prefix(tmp_path_factory):
    assert "make install PREFIX=$PREFIX\n" in PAGE.read_text()
    return sdk.install(tmp_path_factory.mktemp("prefix"))


class Reader:
    def __init__(self, folder, prefix):
        self.folder, self.prefix = folder, prefix
        self.commands, self.questions, self.serve = [], [], None

    def change_table(self, lines):
        path = self.folder / "scale.c"
        text = path.read_text()
        for line in lines.splitlines():
            field = re.match(r" +\.\w+ =", line).group()
            text, found = re.subn(f"^{re.escape(field)}.*$", line, text, count=1, flags=re.M)
            text = text if found else text.replace("    .execute = execute,\n", f"{line}\n    .execute = execute,\n")
        path.write_text(text)

    def replace_execute(self, code):
        path = self.folder / "scale.c"
        text, found = re.subn(r"^static int execute\(.*?^}\n", lambda _: code, path.read_text(), flags=re.M | re.S)
        assert found == 1
        path.write_text(text)

    def take(self, words, language, code):
        name = re.search(r"`([\w./]+)`:$", words)
        if words.endswith("In place of `execute`:"):
            self.replace_execute(code)
        elif words == "In the table:":
            self.change_table(code)
        elif words.startswith("One more line in "):
            with open(self.folder / name.group(1), "a") as file:
                file.write(code)
        elif code.startswith("$ "):
            command, _, answer = code[2:].partition("\n")
            self.questions.append((command, answer))
        elif code.startswith(SERVE):
            self.serve = shlex.split(code[len(SERVE):])
        elif name:
            path = self.folder / name.group(1)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(code)
        else:
            assert language == "", f"what is to be done with this?\n{code}"
            self.commands.append(code)

    def do(self):
        for command in self.commands:
            done = subprocess.run(command, shell=True, cwd=self.folder, env={**os.environ, "PREFIX": str(self.prefix)},
                                  capture_output=True, text=True)
            assert done.returncode == 0 and not done.stderr, f"{command}\n{done.stderr}"

    def start(self):
        return Server(self.folder, [], *self.serve, program=self.prefix / "bin" / "millrace")

    def ask(self, server):
        for command, answer in self.questions:
            command = command.replace("localhost:8000", server.url())
            done = subprocess.run(command, shell=True, capture_output=True, text=True, env=clean_environment({"no_proxy": "*"}), timeout=wait.PATIENCE)
            assert done.stdout.rstrip("\n") == answer.rstrip("\n"), f"{command}\n{done.stdout}{done.stderr}\n{server.describe()}"


@pytest.mark.parametrize("title", ["", "Errors", "Several answers", "Executions that end later"])
@pytest.mark.skipif(not shutil.which("curl"), reason="no curl")
def test_what_the_page_says(tmp_path, prefix, title):
    page = sections()
    reader = Reader(tmp_path, prefix)
    for block in page["The backend"] + page["A model, and a question"]:
        reader.take(*block)
    first = reader.questions[:]
    if title:
        assert page[title], f"{PAGE.name} has no section {title}"
        reader.questions = []
        for block in page[title]:
            reader.take(*block)
    reader.questions = reader.questions or first
    assert reader.questions and reader.serve and len(reader.commands) == 2
    reader.do()
    server = reader.start()
    try:
        server.wait_ready()
        reader.ask(server)
    except BaseException:
        server.end_anyhow()
        raise
    server.stop()
