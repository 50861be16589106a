#!/usr/bin/env python3
"""Checks every #include of our sources against the module table, and what the folders of a module use of each other.

A module may include its own files, api headers of the modules in its DEPS (src/<m>/api/<m>/x.h,
spelled "m/x.h"), <millrace/...> and system headers. A backend may include its own files,
<millrace/...> and system headers, nothing of src/. CMake's include paths catch most slips; this also
catches relative paths, headers that arrive through a dependency's dependency, and a DEPS list that
names a module of the same or a higher layer.

A module or backend may have folders. Its mr_module(… FOLDERS a b c …) lists them in order, and then all of its
files are in them, or in "." if that is listed. A file may use its own folder, those listed before it, and the
module's api headers: what it includes and which functions and objects it names are checked, so that no circle
between folders can arise. A private header of the same folder is spelled "x.h", one of another folder with the
module before it: "m/a/x.h".

usage: check_includes.py [ROOT]    exit status 1 if anything was found
"""
import os
import re
import sys
from pathlib import Path

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)
TABLE = re.compile(r'^\s*(mr_module|mr_backend)\s*\(\s*(\w+)\s+([^)]*)\)', re.MULTILINE)
KEYWORDS = {'LAYER', 'FOLDERS', 'SOURCES', 'DEPS', 'EXTERNAL'}
CODE = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)
DIRECTIVE = re.compile(r'^[ \t]*#(?:[^\n]*\\\n)*[^\n]*', re.MULTILINE)
# What our format makes of them: a function's name before the first bracket of a text whose '{' stands alone in
# column 0, an object's before '[', '=' or ';'.
FUNCTION = re.compile(r'^([A-Za-z_][^;{}=]*?)\n\{$', re.MULTILINE)
OBJECT = re.compile(r'^(?!typedef|extern|return|_Static_assert)([A-Za-z_][\w \t*]*?[ *])(\w+)(?:\[[^\]]*\])*\s*[=;]', re.MULTILINE)
NAME = re.compile(r'(?<![\w.])(?<!->)(?<!struct )(?<!enum )(?<!union )[A-Za-z_]\w*')


def read_tables(root, pattern):
    """Name -> fields, a list of words for each of KEYWORDS, from the tables in the CMakeLists.txt that match."""
    tables = {}
    for path in sorted(root.glob(pattern)):
        text = re.sub(r'#.*', '', path.read_text())
        for _, name, body in TABLE.findall(text):
            fields = {key: [] for key in KEYWORDS}
            key = None
            for word in body.split():
                if word in KEYWORDS:
                    key = word
                elif key:
                    fields[key].append(word)
            tables[name] = fields
    return tables


def read_modules(root):
    """Name -> (layer, set of DEPS)."""
    tables = read_tables(root, 'src/*/CMakeLists.txt')
    return {name: (int(fields['LAYER'][0]), set(fields['DEPS'])) for name, fields in tables.items()}


def sources(folder):
    return sorted(p for p in folder.rglob('*') if p.suffix in ('.c', '.h', '.cc', '.cpp', '.hpp', '.def', '.inc'))


def includes(path):
    """(line number, quote or angle bracket, spelling) of each #include."""
    text = path.read_text(errors='replace')
    for match in INCLUDE.finditer(text):
        yield text.count('\n', 0, match.start(2)) + 1, match.group(1), match.group(2)


def inside(path, folder):
    return Path(os.path.normpath(path)).is_relative_to(folder)


def check_deps(modules):
    for name, (layer, deps) in modules.items():
        for dep in sorted(deps):
            if dep not in modules:
                yield f'src/{name}/CMakeLists.txt: there is no module {dep}'
            elif modules[dep][0] >= layer:
                yield (f'src/{name}/CMakeLists.txt: module {name} (layer {layer}) may not depend on '
                       f'{dep} (layer {modules[dep][0]})')


def check_file(root, path, owner, allowed, names):
    """owner: the folder whose files path may include at will; allowed: modules whose api it may."""
    for line, quote, spelling in includes(path):
        where = f'{path.relative_to(root)}:{line}'
        first = spelling.split('/')[0]
        beside = path.parent / spelling
        if '..' in spelling.split('/'):
            if not inside(beside, owner):
                yield f'{where}: "{spelling}" leaves the folder {owner.relative_to(root)}'
        elif first in names and '/' in spelling and not (owner / spelling).exists() and first != owner.name:
            if quote == '<':
                yield f'{where}: <{spelling}> is ours: spell it with quotes'
            if first not in allowed:
                yield f'{where}: "{spelling}": module {first} is not in the DEPS of {owner.relative_to(root)}'
        elif quote == '"' and first != owner.name and not beside.exists() and not (owner / spelling).exists():
            for module in sorted(names - {owner.name}):
                if (root / 'src' / module / spelling).exists():
                    yield f'{where}: "{spelling}" is private to module {module}'
        if quote == '<' and first == 'src':
            yield f'{where}: <{spelling}> is ours: spell it with quotes'


# ---- folders ----


def definitions(text):
    """(name, is static) of the functions and objects that a .c file defines; text is without comments."""
    text = DIRECTIVE.sub('', text)
    for match in FUNCTION.finditer(text):
        signature = re.sub(r'__attribute__\s*\(\(.*?\)\)+', '', match[1], flags=re.S).lstrip()
        name = re.search(r'(\w+)\s*\(', signature)
        if name:
            yield name[1], signature.startswith('static')
    for match in OBJECT.finditer(text):
        yield match[2], match[1].startswith('static')


def code_of(path):
    """The text without comments and strings."""
    return CODE.sub(lambda match: '""' if match[0][0] == '"' else ' ', path.read_text(errors='replace'))


def uses(folder, files):
    """(path, path of what it includes or names) for the files below a folder."""
    texts = {path: code_of(path) for path in files}
    owners, own = {}, {}
    for path, text in texts.items():
        found = list(definitions(text)) if path.suffix != '.h' else []
        own[path] = {name for name, is_static in found if is_static}
        owners.update((name, path) for name, is_static in found if not is_static)
    for path, text in texts.items():
        bodies = text if path.suffix != '.h' else '\n'.join(re.findall(r'^\{.*?^\}', text, re.S | re.MULTILINE))
        for name in sorted(set(NAME.findall(bodies)) - own[path]):
            if owners.get(name, path) != path:
                yield path, owners[name], name
        for line, _, spelling in includes(path):
            for target in (path.parent / spelling, folder.parent / spelling):
                if target in texts:
                    yield path, target, f'"{spelling}"'
                    break


def check_folders(root, folder, order):
    """`order` are the folders of a module or backend, as its table lists them."""
    here = folder.relative_to(root)
    files = [p for p in sources(folder) if not p.is_relative_to(folder / 'api')]
    rank = {name: i for i, name in enumerate(order)}
    place = {path: str(path.parent.relative_to(folder)) for path in files}
    for path in files:
        if place[path] not in rank:
            yield f'{path.relative_to(root)}: {place[path]} is not in the FOLDERS of {here}/CMakeLists.txt'
    for name in order:
        if name not in place.values():
            yield f'{here}/CMakeLists.txt: FOLDERS lists {name}, which has no file'
    for path, target, name in uses(folder, files):
        if rank.get(place[path], len(rank)) < rank.get(place[target], -1):
            yield (f'{path.relative_to(root)}: uses {name} of {place[target]}, which comes after {place[path]} in the '
                   f'FOLDERS of {here}/CMakeLists.txt')


def check_spelling(root, path, folder):
    """Private headers of another folder are spelled with the module, api headers and own ones are not."""
    for line, quote, spelling in includes(path):
        where = f'{path.relative_to(root)}:{line}'
        parts = spelling.split('/')
        if quote == '<' or '..' in parts or (path.parent / spelling).exists() and len(parts) == 1:
            continue
        if 'api' in parts or len(parts) == 2 and parts[0] == folder.name and not (folder / 'api' / spelling).exists():
            yield f'{where}: "{spelling}" is no header of {folder.name}\'s api'
        elif len(parts) > 1 and parts[0] != folder.name and (folder.parent / spelling).exists():
            yield f'{where}: "{spelling}" is private to module {parts[0]}'
        elif len(parts) > 2 and (folder.parent / spelling).parent == path.parent:
            yield f'{where}: "{spelling}" is of this folder: spell it "{parts[-1]}"'


def check_all_folders(root):
    for kind in ('src', 'backends'):
        for name, fields in read_tables(root, f'{kind}/*/CMakeLists.txt').items():
            folder = root / kind / name
            yield from check_folders(root, folder, fields['FOLDERS'] or ['.'])
            for path in sources(folder):
                yield from check_spelling(root, path, folder)


# ---- all ----


def check(root):
    modules = read_modules(root)
    yield from check_all_folders(root)
    names = set(modules)
    yield from check_deps(modules)
    for name, (_, deps) in modules.items():
        folder = root / 'src' / name
        for path in sources(folder):
            yield from check_file(root, path, folder, deps | {name}, names)
    for folder in sorted(p for p in root.glob('backends/*') if p.is_dir()):
        for path in sources(folder):
            yield from check_file(root, path, folder, set(), names)
    for path in sources(root / 'include'):
        yield from check_file(root, path, root / 'include', set(), names)


def main():
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent.parent).resolve()
    problems = list(check(root))
    for problem in problems:
        print(problem)
    print(f'includes: {len(problems)} problems' if problems else 'includes: ok')
    return 1 if problems else 0


if __name__ == '__main__':
    sys.exit(main())
