#!/usr/bin/env python3
"""The checkers of tools/ on small trees that break each rule, and on one that breaks none."""
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

TOOLS = Path(__file__).resolve().parents[2] / 'tools'

GOOD = {
    'include/millrace/backend.h': '#include <stdint.h>\n',
    'src/base/CMakeLists.txt': 'mr_module(base LAYER 0 SOURCES a.c)\n',
    'src/base/api/base/a.h': '#include <stddef.h>\n',
    'src/base/a.c': '#include "base/a.h"\n#include "secret.h"\n',
    'src/base/secret.h': '',
    'src/codec/CMakeLists.txt': 'mr_module(codec LAYER 1\n    SOURCES c.c\n    DEPS base)\n',
    'src/codec/api/codec/c.h': '',
    'src/codec/c.c': '#include "codec/c.h"\n#include "base/a.h"\n',
    'src/net/CMakeLists.txt': 'mr_module(net LAYER 2 SOURCES n.c DEPS codec)\n',
    'src/net/n.c': '#include <uv.h>\n#include "codec/c.h"\n',
    'backends/x/x.c': '#include <millrace/backend.h>\n#include "own.h"\n',
    'backends/x/own.h': '',
}


def run(tool, tree):
    with tempfile.TemporaryDirectory() as root:
        for name, text in tree.items():
            if text is None:
                continue
            path = Path(root) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        done = subprocess.run([sys.executable, TOOLS / tool, root], capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr


class Includes(unittest.TestCase):
    def refuses(self, changes, text):
        status, output = run('check_includes.py', GOOD | changes)
        self.assertEqual(status, 1, output)
        self.assertIn(text, output)

    def test_good_tree(self):
        self.assertEqual(run('check_includes.py', GOOD), (0, 'includes: ok\n'))

    def test_upward_include(self):
        self.refuses({'src/base/a.c': '#include "codec/c.h"\n'}, 'src/base/a.c:1: "codec/c.h"')

    def test_header_of_a_dependency_of_a_dependency(self):
        self.refuses({'src/net/n.c': '\n\n#include "base/a.h"\n'}, 'src/net/n.c:3: "base/a.h"')

    def test_relative_path_into_another_module(self):
        self.refuses({'src/codec/c.c': '#include "../base/secret.h"\n'}, 'leaves the folder src/codec')

    def test_private_header_of_another_module(self):
        self.refuses({'src/codec/c.c': '#  include "secret.h"\n'}, 'is private to module base')

    def test_angle_brackets(self):
        self.refuses({'src/net/n.c': '#include <base/a.h>\n'}, 'src/net/n.c:1')

    def test_backend_reaching_into_src(self):
        self.refuses({'backends/x/x.c': '#include "base/a.h"\n'}, 'backends/x/x.c:1')
        self.refuses({'backends/x/x.c': '#include "../../src/base/secret.h"\n'}, 'leaves the folder')

    def test_public_header_reaching_into_src(self):
        self.refuses({'include/millrace/backend.h': '#include "base/a.h"\n'}, 'include/millrace/backend.h:1')

    def test_dependency_on_a_higher_or_equal_layer(self):
        self.refuses({'src/base/CMakeLists.txt': 'mr_module(base LAYER 0 SOURCES a.c DEPS net)\n'},
                     'module base (layer 0) may not depend on net (layer 2)')
        self.refuses({'src/net/CMakeLists.txt': 'mr_module(net LAYER 1 SOURCES n.c DEPS codec)\n'},
                     'module net (layer 1) may not depend on codec (layer 1)')


class Style(unittest.TestCase):
    BRACED = """#define FOR(x) for (x)

static void begin(void)
{
    if (a && (b || c)) {
        return;
    } else if (d) { /* if (this) */
        puts("if (that) do");
    } else {
        do {
            for (;;) {
            }
        } while (--a);
    }
}

__attribute__((noinline)) static int wait_for(void)
{
}

int mr_x(void)
{
}

int plan_x(void)
{
}

int step_x(void)
{
}

int codec_x = 3;
"""

    def refuses(self, body, text, name='static int f'):
        status, output = run('check_style.py', {'src/codec/steps/plan.c': f'{name}(void)\n{{\n{body}}}\n'})
        self.assertEqual(status, 1, output)
        self.assertIn(text, output)

    def test_good_file(self):
        self.assertEqual(run('check_style.py', {'src/codec/steps/plan.c': self.BRACED}), (0, 'style: ok\n'))

    def test_bodies_without_braces(self):
        for word, body in (('if', 'if (a(b))\n'), ('while', 'while (a)\n'), ('for', 'for (;;)\n'), ('else', 'if (a) {\n} else\n'), ('do', 'do\n')):
            self.refuses(f'/* 3\n4 */ {body}        a();\n', f'plan.c:{5 if word == "else" else 4}: the body of {word} has no braces')

    def test_names(self):
        self.refuses('', 'plan.c: other_x begins neither', 'int other_x')
        self.refuses('', 'plan.c: planx begins neither', 'const struct x *planx')

    def test_a_comment_that_splits_a_member(self):
        text = 'struct x {\n    bool is_a; /* a */\n    const char *const\n        *b; /* long */\n    /* long */\n    bool is_c;\n};\n'
        status, output = run('check_style.py', {'src/codec/x.h': text})
        self.assertEqual((status, 'x.h:4: the comment of *b splits' in output, output.count('splits')), (1, True, 1), output)

    def test_types_of_two_definitions(self):
        files = {'src/codec/api/codec/a.h': 'struct mr_a {\n    int x;\n};\n', 'src/codec/b.c': '/* struct mr_a { */\nstruct mr_a *b;\n'}
        self.assertEqual(run('check_style.py', files), (0, 'style: ok\n'))
        status, output = run('check_style.py', files | {'src/oip/b.h': 'struct mr_a\n{\n    int y;\n};\n'})
        self.assertEqual((status, 'src/oip/b.h: mr_a is defined in src/codec/api/codec/a.h as well' in output), (1, True), output)


FOLDERS = GOOD | {
    'src/codec/CMakeLists.txt': 'mr_module(codec LAYER 1\n    FOLDERS low mid/deep top\n    SOURCES low/l.c DEPS base)\n',
    'src/codec/c.c': None,
    'src/codec/low/l.h': 'int low(void);\nextern int count;\n',
    'src/codec/low/l.c': '#include "l.h"\n#include "codec/c.h"\n\nint count = 3;\n\nint low(void)\n{\n    return count;\n}\n',
    'src/codec/mid/deep/m.h': '#include "codec/low/l.h"\n',
    'src/codec/top/t.c': '#include "codec/mid/deep/m.h"\n\nint top(void)\n{\n    return low() + count;\n}\n',
}


class Folders(unittest.TestCase):
    def refuses(self, changes, text):
        status, output = run('check_includes.py', FOLDERS | changes)
        self.assertEqual(status, 1, output)
        self.assertIn(text, output)

    def test_good_tree(self):
        self.assertEqual(run('check_includes.py', FOLDERS), (0, 'includes: ok\n'))

    def test_include_of_a_later_folder(self):
        self.refuses({'src/codec/low/l.c': '#include "codec/mid/deep/m.h"\n'},
                     'src/codec/low/l.c: uses "codec/mid/deep/m.h" of mid/deep, which comes after low')

    def test_function_of_a_later_folder(self):
        """Also where another header declares it."""
        self.refuses({'src/codec/low/l.h': 'int top(void);\n', 'src/codec/low/l.c': '#include "l.h"\n\nint low(void)\n{\n    return top();\n}\n'},
                     'src/codec/low/l.c: uses top of top, which comes after low')

    def test_object_of_a_later_folder(self):
        self.refuses({'src/codec/top/t.c': 'const int *const last = 0;\n', 'src/codec/low/l.c': 'extern const int *const last;\nconst void *p = last;\n'},
                     'src/codec/low/l.c: uses last of top')

    def test_same_names_that_are_no_uses(self):
        tree = FOLDERS | {'src/codec/low/l.c': 'struct top;\n\nint low(struct top *p)\n{\n    /* top */\n    return p->top + p[0].top;\n}\n'}
        self.assertEqual(run('check_includes.py', tree), (0, 'includes: ok\n'))

    def test_file_outside_of_the_folders(self):
        self.refuses({'src/codec/other/o.c': ''}, 'src/codec/other/o.c: other is not in the FOLDERS of src/codec/CMakeLists.txt')
        self.refuses({'src/codec/o.c': ''}, 'src/codec/o.c: . is not in the FOLDERS')

    def test_folder_without_a_file(self):
        self.refuses({'src/codec/CMakeLists.txt': 'mr_module(codec LAYER 1 FOLDERS low mid/deep far top SOURCES x.c DEPS base)\n'},
                     'FOLDERS lists far, which has no file')

    def test_spelling(self):
        self.refuses({'src/codec/top/t.c': '#include "codec/top/t.h"\n', 'src/codec/top/t.h': ''}, 'spell it "t.h"')
        self.refuses({'src/codec/top/t.c': '#include "codec/l.h"\n'}, '"codec/l.h" is no header of codec\'s api')
        self.refuses({'src/codec/top/t.c': '#include "codec/api/codec/c.h"\n'}, 'is no header of codec\'s api')

    def test_private_header_of_another_module(self):
        self.refuses({'src/net/n.c': '#include "codec/low/l.h"\n'}, '"codec/low/l.h" is private to module codec')
        self.refuses({'src/net/n.c': '#include "base/secret.h"\n'}, '"base/secret.h" is private to module base')

    def test_backend(self):
        table = {'backends/x/CMakeLists.txt': 'mr_backend(x FOLDERS a . SOURCES a/a.c x.c)\n', 'backends/x/a/a.h': ''}
        tree = FOLDERS | table | {'backends/x/x.c': '#include "x/a/a.h"\n'}
        self.assertEqual(run('check_includes.py', tree), (0, 'includes: ok\n'))
        self.refuses(table | {'backends/x/a/a.c': '#include "x/own.h"\n'}, '"x/own.h" is no header')


def c_function(name, lines):
    return f'static int {name}(int (*call)(void), int a,\n    int b)\n' + '{\n' + '    a++;\n' * (lines - 2) + '}\n'


class Limits(unittest.TestCase):
    def test_within(self):
        tree = {'src/a.c': c_function('f', 120), 'src/b.c': '\n' * 1000}
        self.assertEqual(run('check_limits.py', tree), (0, 'limits: ok\n'))

    def test_long_function(self):
        status, output = run('check_limits.py', {'src/a.c': c_function('f', 10) + c_function('g', 121)})
        self.assertEqual(status, 1)
        self.assertIn('src/a.c: g has 121 lines', output)

    def test_complex_function(self):
        body = ('static int f(int a)\n{\n    /* if, and && or ? */\n    const char *s = "for (;;) if case ?";\n    switch (a) {\n'
                + ''.join(f'    case {i}: return a ? {i} : 0;\n' for i in range(8))
                + '    }\n    return a && s || a;\n}\n')
        self.assertEqual(run('check_limits.py', {'src/a.c': body}), (0, 'limits: ok\n'), '1 + 8 + 8 + 2')
        status, output = run('check_limits.py', {'src/a.c': body.replace('return a &&', 'while (a) a--;\n    if (a) return a &&')})
        self.assertEqual(status, 1)
        self.assertIn('src/a.c: f has a cyclomatic complexity of 21, 20 allowed', output)

    def test_long_file(self):
        status, output = run('check_limits.py', {'src/a.c': '\n' * 1001})
        self.assertEqual(status, 1)
        self.assertIn('src/a.c: 1001 lines', output)

    def test_full_folder(self):
        tree = {f'src/a/{i}.c': '' for i in range(25)} | {f'tests/fuzz/corpus/x/{i}': '' for i in range(99)}
        self.assertEqual(run('check_limits.py', tree), (0, 'limits: ok\n'))
        tree |= {'src/a/more.txt': ''}
        status, output = run('check_limits.py', tree)
        self.assertEqual(status, 1)
        self.assertIn('src/a/: 26 files, 25 allowed', output)
        tree |= {'tools/limits.txt': 'src/a/ parts that only make sense together\n'}
        self.assertEqual(run('check_limits.py', tree)[0], 0)

    def test_listed_with_a_reason(self):
        tree = {'src/a.c': c_function('g', 200), 'tools/limits.txt': 'src/a.c:g one switch over a fixed table\n'}
        self.assertEqual(run('check_limits.py', tree)[0], 0)
        tree['tools/limits.txt'] = 'src/a.c:g\n'
        self.assertEqual(run('check_limits.py', tree)[0], 1, 'a reason is required')

    def test_stale_entry(self):
        status, output = run('check_limits.py', {'src/a.c': '', 'tools/limits.txt': 'src/a.c was long once\n'})
        self.assertEqual(status, 1)
        self.assertIn('remove it', output)


if __name__ == '__main__':
    unittest.main()
