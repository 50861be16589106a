#!/usr/bin/env python3
"""Checks that the documentation says what the sources say.

  docs/configuration.md   a row for every option of src/cli/serve/opt_serve_table.c with its default, range and
                          environment variable; a row for every setting of ModelConfig, with what
                          src/model/config/config_fields.c says becomes of it
  docs/operations.md      every metric of src/serve/admin/metrics_*.c, every event that goes to the log
  docs/architecture.md    every lock of src/ with its file, and every named thread
  docs/compatibility.md   every row has a known state; rows but those that say "not yet" name at least one
                          test, and every test that is named exists
  *.md, docs/**/*.md      relative links and their anchors, targets of `make`, and source files named in
                          backticks exist

usage: check_docs.py [ROOT]            exit status 1 if anything was found
       check_docs.py --options [ROOT]  print the option table as Markdown rows
"""
import ast
import functools
import re
import sys
from pathlib import Path

FOLDERS = ('src', 'include', 'backends', 'proto', 'tests', 'tools', 'examples', 'docs', 'cmake', 'bench')
STATES = ('works', 'different', 'extra', 'not yet')


def cells(line):
    """The cells of a Markdown table row; `\\|` is no border."""
    return [c.strip() for c in re.split(r'(?<!\\)\|', line.strip().strip('|'))]


def rows(text):
    """(line number, cells) of every table row below its header."""
    inside = False
    for number, line in enumerate(text.splitlines(), 1):
        if not line.startswith('|'):
            inside = False
        elif not inside:
            inside = True
        elif not set(line) <= set('|-: '):
            yield number, cells(line)


def without_blocks(text):
    return re.sub(r'^```.*?^```', '', text, flags=re.M | re.S)


def code(text):
    """What stands in backticks within a line."""
    return re.findall(r'`([^`\n]+)`', without_blocks(text))


# ---- options ----


def arguments(text, start):
    """The top-level arguments of the call whose '(' is at text[start], as source text."""
    parts, part, depth, quoted = [], '', 0, False
    for i in range(start, len(text)):
        c = text[i]
        if c == '"' and text[i - 1] != '\\':
            quoted = not quoted
        elif not quoted and c == '(':
            depth += 1
            if depth == 1:
                continue
        elif not quoted and c == ')':
            depth -= 1
            if depth == 0:
                return parts + [part.strip()]
        if not quoted and depth == 1 and c == ',':
            parts.append(part.strip())
            part = ''
        else:
            part += c
    raise ValueError('unbalanced parentheses in the option table')


def literal(source):
    """A C string literal (or NULL) as text, adjacent ones joined; None for NULL."""
    found = re.findall(r'"((?:[^"\\]|\\.)*)"', source)
    return ''.join(found) if found else None


def bytes_text(n):
    for shift, unit in ((50, 'PiB'), (40, 'TiB'), (30, 'GiB'), (20, 'MiB'), (10, 'KiB')):
        if n >= 1 << shift and n % (1 << shift) == 0:
            return f'{n >> shift} {unit}'
    return str(n)


class Option:
    def __init__(self, name, kind, default=None, low=None, high=None, unit='', choices=(), state='works',
                 has_variable=True):
        self.name, self.kind, self.default = name, kind, default
        self.low, self.high, self.unit, self.choices, self.state = low, high, unit, choices, state
        self.has_variable = has_variable

    @property
    def variable(self):
        return f"`MILLRACE_{self.name.upper().replace('-', '_')}`" if self.has_variable else '–'

    @property
    def range(self):
        if self.choices:
            return ', '.join(f'`{c}`' for c in self.choices)
        if self.low is None or (self.low == 0 and self.high == 0):
            return ''
        if self.kind == 'bytes':
            return f'{bytes_text(self.low)}–{bytes_text(self.high)}'
        return f'{self.low}–{self.high}{self.unit}'


UNITS = {'MR_NS_PER_S': ' s', 'MR_NS_PER_MS': ' ms', 'MR_NS_PER_US': ' µs'}


def read_options(root):
    """The rows of the table of `millrace serve`. Knows its macros; fails on one that is new."""
    text = (root / 'src/cli/serve/opt_serve_table.c').read_text(encoding='utf-8')
    text = re.sub(r'/\*.*?\*/', '', text, flags=re.S)
    lists = {name: re.findall(r'"([^"]+)"', body)
             for name, body in re.findall(r'const char \*const (\w+)\[\] = \{(.*?)\}', text, flags=re.S)}
    constants = {'GIB': 1 << 30, 'INT64_MAX': (1 << 63) - 1}
    constants.update({n: int(v) for n, v in re.findall(r'#define (\w+) +(\d+)\n', text)})

    def number(source):
        source = re.sub(r'INT64_C\((\d+)\)', r'\1', source)
        return int(eval(source, {}, constants))  # arithmetic of our own source file

    table = text[text.index('mr_serve_table[] = {'):]
    table = table[:table.index('\n};')]
    # A row that no macro suits is written out; make it look like a call.
    written = []

    def spell(match):
        body = match.group(1)
        field = dict(re.findall(r'\.(\w+) = ((?:"[^"]*"|[^,"])+)', body))
        written.append(Option(literal(field['name']), field['kind'].strip(), literal(field.get('fallback', '')),
                              number(field['min']) if 'min' in field else None,
                              number(field['max']) if 'max' in field else None,
                              UNITS.get(field.get('scale', '').strip(), ''),
                              has_variable='CLI_ONLY' not in field.get('flags', '')))
        return f'WRITTEN({len(written) - 1})'

    table = re.sub(r'\{(\.name = (?:[^{}]|\{[^{}]*\})*)\}', spell, table)
    options = []
    for match in re.finditer(r'^ {4}([A-Z_]+)\(', table, flags=re.M):
        macro, a = match.group(1), arguments(table, match.end() - 1)
        if macro == 'GROUP':
            continue
        if macro == 'WRITTEN':
            options.append(written[int(a[0])])
            continue
        name = literal(a[0])
        if macro in ('FLAG', 'OLD_FLAG'):
            options.append(Option(name, 'bool', literal(a[2]), choices=('true', 'false')))
        elif macro == 'TEXT':
            options.append(Option(name, 'text', literal(a[2])))
        elif macro in ('LIST', 'NAME', 'SECRET'):
            options.append(Option(name, 'list'))
        elif macro == 'CHOICE':
            options.append(Option(name, 'choice', literal(a[2]), choices=lists[a[3]]))
        elif macro in ('NUMBER', 'BYTES'):
            options.append(Option(name, macro.lower(), literal(a[2]), number(a[3]), number(a[4])))
        elif macro == 'TIME':
            options.append(Option(name, 'time', literal(a[2]), number(a[3]), number(a[4]), UNITS[a[5]]))
        elif macro in ('IDLE', 'IDLE_FLAG'):
            options.append(Option(name, 'idle', state='idle'))
        elif macro in ('NOT_HERE', 'NOT_HERE_FLAG'):
            options.append(Option(name, 'absent', state='absent'))
        else:
            raise ValueError(f'opt_serve_table.c: tools/check_docs.py does not know {macro}()')
    return options


def option_row(o):
    default = f'`{o.default}`' if o.default else '–'
    return f'| `--{o.name}` | {default} | {o.range or "–"} | {o.variable} |'


def check_options(root):
    text = (root / 'docs/configuration.md').read_text(encoding='utf-8')
    table = {}
    for number, row in rows(text):
        name = re.fullmatch(r'`--([a-z0-9-]+)`', row[0])
        if name:
            table.setdefault(name.group(1), (number, row))
    options = read_options(root)
    for o in options:
        if o.name not in table:
            yield f'docs/configuration.md: no row for --{o.name}'
            continue
        number, row = table[o.name]
        if o.state != 'works':
            continue
        want = cells(option_row(o))
        for column, got, wanted in zip(('default', 'range', 'variable'), row[1:4], want[1:4]):
            if got != wanted:
                yield f'docs/configuration.md:{number}: {column} of --{o.name} is {got}, the table says {wanted}'
    known = {o.name for o in options}
    for name, (number, row) in table.items():
        # Options of other sub-commands have no environment variable in their row.
        if name not in known and len(row) > 3 and 'MILLRACE_' in row[3]:
            yield f'docs/configuration.md:{number}: there is no option --{name}'


# ---- ModelConfig ----


def read_messages(root):
    """Full message name -> [(field, type or None)], from proto/model_config.proto."""
    text = re.sub(r'//[^\n]*', '', (root / 'proto/model_config.proto').read_text(encoding='utf-8'))
    messages, path = {}, []
    for token in re.finditer(r'message (\w+) \{|(?:oneof|enum) (\w+) \{|\}|'
                             r'(?:repeated )?(map<[^>]+>|[\w.]+) (\w+) = \d+', text):
        if token.group(1):
            path.append(token.group(1))
            messages['.'.join(p for p in path if p)] = []
        elif token.group(2):
            path.append('')
        elif token.group(0) == '}':
            path.pop()
        elif token.group(4):
            kind = token.group(3)
            kind = kind[4:-1].split(',')[1].strip() if kind.startswith('map<') else kind
            messages['.'.join(p for p in path if p)].append((token.group(4), kind))
    return messages


def find_message(messages, scope, kind):
    parts = scope.split('.')
    for n in range(len(parts), -1, -1):
        name = '.'.join(parts[:n] + [kind])
        if name in messages:
            return name
    return None


def setting_paths(messages, message='ModelConfig', prefix=''):
    """The dotted path of every field that is no message, and of every message, below `message`."""
    for field, kind in messages[message]:
        yield prefix + field
        below = find_message(messages, message, kind)
        if below and prefix.count('.') < 6:
            yield from setting_paths(messages, below, prefix + field + '.')


def read_fields(root):
    """Path -> honoured, no effect or refused, as src/model/config/config_fields.c says."""
    text = (root / 'src/model/config/config_fields.c').read_text(encoding='utf-8')
    words = {'HONOURED': 'honoured', 'NO_EFFECT': 'no effect', 'REFUSED': 'refused'}
    return {path: words[kind] for path, kind in re.findall(r'\{"([a-z_.]+)",\s*MR_CONFIG_(\w+),', text)}


def covering(path, entries):
    found = [e for e in entries if path == e or path.startswith(e + '.')]
    return max(found, key=len) if found else None


def check_fields(root):
    fields = read_fields(root)
    table = {}
    for number, row in rows((root / 'docs/configuration.md').read_text(encoding='utf-8')):
        if len(row) > 1 and row[1] in ('honoured', 'no effect', 'refused'):
            for path in code(row[0]):
                table[path] = (number, row[1])
    for path, state in fields.items():
        if path not in table and not any(p.startswith(path + '.') for p in table):
            yield f'docs/configuration.md: no row for the ModelConfig field `{path}`'
    for path, (number, state) in table.items():
        entry = covering(path, fields)
        if not entry and any(f.startswith(path + '.') for f in fields):
            continue  # a message whose fields have rows of their own
        if not entry:
            yield f'docs/configuration.md:{number}: `{path}` is not in src/model/config/config_fields.c'
        elif fields[entry] != state:
            yield f'docs/configuration.md:{number}: `{path}` is {fields[entry]}, the page says {state}'
    # What is honoured is told leaf by leaf; one row is enough for all of a message that is not.
    messages = read_messages(root)
    for path in setting_paths(messages):
        above = covering(path, table)
        if above is None:
            if not any(p.startswith(path + '.') for p in table):
                yield f'docs/configuration.md: no row for the ModelConfig field `{path}`'
        elif above != path and table[above][1] == 'honoured':
            yield f'docs/configuration.md: `{above}` has a row, `{path}` has none'


# ---- metrics ----


def check_metrics(root):
    yield from check_metrics_of(root, 'src/serve/admin/metrics*.c', 'docs/operations.md', r'(?:nv|millrace|process)_[a-z_]+')
    yield from check_metrics_of(root, 'src/batch/report/metrics.c', 'docs/batch/running.md', r'millrace_batch_[a-z_]+')


def check_metrics_of(root, source, page, pattern):
    names = set()
    text = '\n'.join(path.read_text(encoding='utf-8') for path in sorted(root.glob(source)))
    for string in re.findall(r'"((?:[^"\\]|\\.)*)"', text):
        names.update(re.findall(rf'\b{pattern}', string))
    names = {n for n in names if re.sub(r'_(bucket|sum|count)$', '', n) not in names - {n}}
    shown = {re.split(r'[{ ]', c)[0] for c in code((root / page).read_text(encoding='utf-8'))}
    for name in sorted(names - shown):
        yield f'{page}: the metric `{name}` is not there'
    for name in sorted(n for n in shown if re.fullmatch(pattern, n)):
        if name not in names and re.sub(r'_(bucket|sum|count)$', '', name) not in names:
            yield f'{page}: there is no metric `{name}`'


def check_events(root):
    names = set()
    for path in (root / 'src').rglob('*.c'):
        for call in re.findall(r'\bmr_log(?:_line)?\((.{0,200})', path.read_text(encoding='utf-8'), flags=re.S):
            names.update(re.findall(r'"([a-z]+\.[a-z_]+)"', call.split(';')[0]))
    page = code((root / 'docs/operations.md').read_text(encoding='utf-8'))
    for name in sorted(names - set(page)):
        yield f'docs/operations.md: the event `{name}` is not there'


# ---- architecture ----


def check_threads(root):
    """Locks and threads; a header in api/ is named as it is included."""
    page = set(code((root / 'docs/architecture.md').read_text(encoding='utf-8')))
    last = {name.rsplit('.', 1)[-1] for name in page}
    for path in sorted(p for p in (root / 'src').rglob('*.[ch]')):
        text = path.read_text(encoding='utf-8')
        where = re.sub(r'^(\w+)/api/', '', str(path.relative_to(root / 'src')))
        for name in re.findall(r'\bpthread_(?:mutex|rwlock)_t (\w+)[;\s=]', text):
            if where not in page or name not in last:
                yield f'docs/architecture.md: the lock `{name}` of `{where}` is not there'
        for name in re.findall(r'\bmr_thread_start\([^;"]*"([^"]+)"', text):
            if name not in page:
                yield f'docs/architecture.md: the thread `{name}` is not there'


# ---- compatibility ----


@functools.cache
def functions(path):
    return {n.name for n in ast.walk(ast.parse(path.read_text(encoding='utf-8')))
            if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef))}


def test_exists(root, name):
    if name.startswith('unit.'):
        _, module, program = (name.split('.') + ['', ''])[:3]
        folder = root / 'tests/unit' / module
        return any(folder.glob(f'{program}.c*')) if program else folder.is_dir()
    path, _, function = name.partition('::')
    path = root / path
    return path.exists() and (not function or function.split('[')[0] in functions(path))


def check_compatibility(root):
    page = root / 'docs/compatibility.md'
    for number, row in rows(page.read_text(encoding='utf-8')):
        if len(row) < 4 or row[1] not in STATES:
            if len(row) > 1 and any(row[1].startswith(s) for s in STATES):
                yield f'docs/compatibility.md:{number}: the state is "{row[1]}", allowed are {", ".join(STATES)}'
            continue
        tests = [c for c in code(row[2]) if c.startswith(('tests/', 'unit.'))]
        if row[1] != 'not yet' and not tests:
            yield f'docs/compatibility.md:{number}: "{row[0]}" says "{row[1]}" and names no test'
        for name in tests:
            if not test_exists(root, name):
                yield f'docs/compatibility.md:{number}: there is no test {name}'


# ---- links and names ----


def anchors(text):
    """The anchors of a page's headings, as GitHub makes them."""
    found = set()
    for title in re.findall(r'^#+ +(.+)$', without_blocks(text), flags=re.M):
        base = re.sub(r'[^\w\- ]', '', title.lower()).replace(' ', '-')
        name, n = base, 1
        while name in found:
            name, n = f'{base}-{n}', n + 1
        found.add(name)
    return found


def check_links(root, page, text):
    here = page.relative_to(root)
    plain = without_blocks(text)
    for target in re.findall(r'\]\(([^)\s]+)\)', re.sub(r'`[^`]*`', '', plain)):
        if re.match(r'[a-z]+:', target):
            continue
        path, _, anchor = target.partition('#')
        file = (page.parent / path).resolve() if path else page
        if not file.exists():
            yield f'{here}: the link to {target} leads nowhere'
        elif anchor and file.suffix == '.md' and anchor not in anchors(file.read_text(encoding='utf-8')):
            yield f'{here}: {file.name} has no heading for #{anchor}'


def source_exists(root, name):
    """`src/x/y.c` as it is, or `x/y.c` for a file of module x."""
    if name.split('/')[0] in FOLDERS:
        return (root / name).exists()
    module, _, rest = name.partition('/')
    return any((root / base).exists() for base in (f'src/{module}/{rest}', f'src/{module}/api/{name}'))


def check_names(root, page, text):
    here = page.relative_to(root)
    targets = set(re.findall(r'^([a-z][a-z-]*):', (root / 'Makefile').read_text(encoding='utf-8'), flags=re.M))
    targets |= set(re.findall(r'^(test-[a-z -]+): test-%', (root / 'Makefile').read_text(encoding='utf-8'), flags=re.M))
    targets |= {f'test-{kind}' for kind in ('release', 'asan', 'tsan', 'clang')}
    for target in re.findall(r'(?:^|[`\n] *)make ([a-z][a-z-]*)', text):
        if target not in targets:
            yield f'{here}: make has no target {target}'
    for name in code(text):
        name = name.split(':')[0]
        if re.fullmatch(r'[a-z0-9_]+(?:/[A-Za-z0-9_.]+)+\.(?:c|h|cc|py|cmake|proto)', name):
            module = name.split('/')[0]
            if (module in FOLDERS or (root / 'src' / module).is_dir()) and not source_exists(root, name):
                yield f'{here}: there is no {name}'


def main(arguments_given):
    wants_options = '--options' in arguments_given
    left = [a for a in arguments_given if a != '--options']
    root = Path(left[0] if left else Path(__file__).parent.parent).resolve()
    if wants_options:
        print('\n'.join(option_row(o) for o in read_options(root)))
        return 0
    problems = []
    for check in (check_options, check_fields, check_metrics, check_events, check_threads, check_compatibility):
        problems += check(root)
    for page in [*sorted(root.glob('*.md')), *sorted((root / 'docs').rglob('*.md'))]:
        text = page.read_text(encoding='utf-8')
        problems += check_links(root, page, text)
        problems += check_names(root, page, text)
    print('\n'.join(problems) if problems else 'docs: ok')
    return 1 if problems else 0


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
