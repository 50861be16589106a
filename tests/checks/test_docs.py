#!/usr/bin/env python3
"""tools/check_docs.py finds what it should: the pages as they are, with one thing wrong at a time."""
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]


class Docs(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        for entry in TOP.iterdir():
            if entry.name not in ('docs', 'README.md', 'build', '.git'):
                (self.root / entry.name).symlink_to(entry)
        shutil.copytree(TOP / 'docs', self.root / 'docs')
        shutil.copy(TOP / 'README.md', self.root)

    def check(self):
        done = subprocess.run([sys.executable, TOP / 'tools' / 'check_docs.py', self.root], capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr

    def finds(self, page, old, new, said):
        path = self.root / page
        text = path.read_text(encoding='utf-8')
        self.assertIn(old, text)
        path.write_text(text.replace(old, new), encoding='utf-8')
        status, output = self.check()
        self.assertEqual(status, 1, output)
        self.assertIn(said, output)

    def test_pages_as_they_are(self):
        status, output = self.check()
        self.assertEqual(status, 0, output)

    def test_missing_option(self):
        self.finds('docs/configuration.md', '| `--http-port` |', '| `--http-prt` |', 'no row for --http-port')

    def test_wrong_default(self):
        self.finds('docs/configuration.md', '| `--http-port` | `8000` |', '| `--http-port` | `8080` |',
                   'default of --http-port is `8080`, the table says `8000`')

    def test_wrong_variable(self):
        self.finds('docs/configuration.md', '`MILLRACE_HTTP_PORT` |', '`MILLRACE_PORT` |', 'variable of --http-port')

    def test_missing_option_of_triton(self):
        self.finds('docs/configuration.md', '| `--trace-config` |', '| – |', 'no row for --trace-config')

    def test_missing_field(self):
        self.finds('docs/configuration.md', '| `input.optional` | honoured |', '| x | honoured |', 'input.optional')

    def test_missing_field_within_a_message(self):
        self.finds('docs/configuration.md', '| `dynamic_batching.preserve_ordering` |', '| x |', 'dynamic_batching.preserve_ordering')

    def test_wrong_state_of_a_field(self):
        self.finds('docs/configuration.md', '| `runtime` | no effect |', '| `runtime` | honoured |', '`runtime` is no effect')

    def test_missing_metric(self):
        self.finds('docs/operations.md', '`millrace_connections`', '`connections`', 'the metric `millrace_connections` is not there')

    def test_unknown_metric(self):
        self.finds('docs/operations.md', '`millrace_connections`', '`millrace_connexions`', 'there is no metric `millrace_connexions`')

    def test_missing_event(self):
        self.finds('docs/operations.md', '`model.failed`', 'model.failed', 'the event `model.failed` is not there')

    def test_missing_lock(self):
        self.finds('docs/architecture.md', '`sched/sched_priv.h`', 'sched', 'the lock `mutex` of `sched/sched_priv.h` is not there')

    def test_missing_thread(self):
        self.finds('docs/architecture.md', '`mr-reap`', '', 'the thread `mr-reap` is not there')

    def test_row_without_test(self):
        self.finds('docs/compatibility.md', '| curl | works |', '| x | works | | |\n| curl | works |',
                   '"x" says "works" and names no test')

    def test_test_that_does_not_exist(self):
        self.finds('docs/compatibility.md', '`tests/integration/10/test_curl.py::test_unix_sockets`',
                   '`tests/integration/10/test_curl.py::test_no_such`', 'there is no test')

    def test_unknown_state(self):
        self.finds('docs/compatibility.md', '| curl | works |', '| curl | works mostly |', 'the state is "works mostly"')

    def test_dead_link(self):
        self.finds('README.md', '(docs/operations.md)', '(docs/operation.md)', 'docs/operation.md leads nowhere')

    def test_dead_anchor(self):
        self.finds('docs/operations.md', '](#tuning)', '](#tunning)', 'no heading for #tunning')

    def test_file_that_is_gone(self):
        self.finds('docs/architecture.md', '`sched/submit.c`', '`sched/submitted.c`', 'there is no sched/submitted.c')

    def test_target_that_is_gone(self):
        self.finds('README.md', 'make demo ', 'make dmeo ', 'make has no target dmeo')


if __name__ == '__main__':
    unittest.main()
