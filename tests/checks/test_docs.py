#!/usr/bin/env python3
"""tools/check_docs.py finds what it should: the pages as they are, and with many things wrong at once."""
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
# What is wrong: page, the text that is replaced, what stands there instead, what is said of it.
WRONG = {
    'missing option': ('docs/configuration.md', '| `--http-port` |', '| `--http-prt` |', 'no row for --http-port'),
    'wrong default': ('docs/configuration.md', '| `--grpc-port` | `8001` |', '| `--grpc-port` | `8081` |',
                      'default of --grpc-port is `8081`, the table says `8001`'),
    'wrong variable': ('docs/configuration.md', '`MILLRACE_METRICS_PORT` |', '`MILLRACE_PORT` |', 'variable of --metrics-port'),
    'missing option of triton': ('docs/configuration.md', '| `--trace-config` |', '| – |', 'no row for --trace-config'),
    'missing field': ('docs/configuration.md', '| `input.optional` | honoured |', '| x | honoured |', 'input.optional'),
    'missing field within a message': ('docs/configuration.md', '| `dynamic_batching.preserve_ordering` |', '| x |', 'dynamic_batching.preserve_ordering'),
    'wrong state of a field': ('docs/configuration.md', '| `runtime` | no effect |', '| `runtime` | honoured |', '`runtime` is no effect'),
    'missing metric': ('docs/operations.md', '`millrace_connections`', '`connections`', 'the metric `millrace_connections` is not there'),
    'unknown metric': ('docs/operations.md', '`millrace_block_bytes`', '`millrace_blok_bytes`', 'there is no metric `millrace_blok_bytes`'),
    'missing event': ('docs/operations.md', '`model.failed`', 'model.failed', 'the event `model.failed` is not there'),
    'missing lock': ('docs/architecture.md', '`sched/sched_priv.h`', 'sched', 'the lock `mutex` of `sched/sched_priv.h` is not there'),
    'missing thread': ('docs/architecture.md', '`mr-reap`', '', 'the thread `mr-reap` is not there'),
    'row without test': ('docs/compatibility.md', '| curl | works |', '| x | works | | |\n| curl | works |', '"x" says "works" and names no test'),
    'test that does not exist': ('docs/compatibility.md', '`tests/integration/10/test_curl.py::test_unix_sockets`', '`tests/integration/10/test_curl.py::test_no_such`', 'there is no test'),
    'unknown state': ('docs/compatibility.md', '| `id` comes back | works |', '| `id` comes back | works mostly |', 'the state is "works mostly"'),
    'dead link': ('README.md', '(docs/operations.md)', '(docs/operation.md)', 'docs/operation.md leads nowhere'),
    'dead anchor': ('docs/operations.md', '](#tuning)', '](#tunning)', 'no heading for #tunning'),
    'file that is gone': ('docs/architecture.md', '`sched/submit.c`', '`sched/submitted.c`', 'there is no sched/submitted.c'),
    'target that is gone': ('README.md', 'make demo ', 'make dmeo ', 'make has no target dmeo'),
}


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

    def test_pages_as_they_are(self):
        status, output = self.check()
        self.assertEqual(status, 0, output)

    def test_what_is_wrong(self):
        for name, (page, old, new, _) in WRONG.items():
            with self.subTest(name):
                path = self.root / page
                text = path.read_text(encoding='utf-8')
                self.assertTrue(old in text, old)
                path.write_text(text.replace(old, new), encoding='utf-8')
        status, output = self.check()
        self.assertEqual(status, 1, output)
        for name, (_, _, _, said) in WRONG.items():
            with self.subTest(name):
                self.assertIn(said, output)


if __name__ == '__main__':
    unittest.main()
