#!/usr/bin/env python3
"""Checks every #include of our sources against the module table.

A module may include its own files, api headers of the modules in its DEPS (src/<m>/api/<m>/x.h,
spelled "m/x.h"), <millrace/...> and system headers. A backend may include its own files,
<millrace/...> and system headers, nothing of src/. CMake's include paths catch most slips; this also
catches relative paths, headers that arrive through a dependency's dependency, and a DEPS list that
names a module of the same or a higher layer.

usage: check_includes.py [ROOT]    exit status 1 if anything was found
"""
import os
import re
import sys
from pathlib import Path

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)
MODULE = re.compile(r'^\s*mr_module\s*\(\s*(\w+)\s+([^)]*)\)', re.MULTILINE)
KEYWORDS = {'LAYER', 'SOURCES', 'DEPS', 'EXTERNAL'}


def read_modules(root):
    """Name -> (layer, set of DEPS), from the mr_module(...) of each src/*/CMakeLists.txt."""
    modules = {}
    for path in sorted(root.glob('src/*/CMakeLists.txt')):
        text = re.sub(r'#.*', '', path.read_text())
        for name, body in MODULE.findall(text):
            fields = {}
            key = None
            for word in body.split():
                if word in KEYWORDS:
                    key = word
                    fields[key] = []
                elif key:
                    fields[key].append(word)
            modules[name] = (int(fields['LAYER'][0]), set(fields.get('DEPS', [])))
    return modules


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
        elif first in names and '/' in spelling and not (owner / spelling).exists():
            if quote == '<':
                yield f'{where}: <{spelling}> is ours: spell it with quotes'
            if first not in allowed:
                yield f'{where}: "{spelling}": module {first} is not in the DEPS of {owner.relative_to(root)}'
        elif quote == '"' and not beside.exists() and not (owner / spelling).exists():
            for module in sorted(names - {owner.name}):
                if (root / 'src' / module / spelling).exists():
                    yield f'{where}: "{spelling}" is private to module {module}'
        if quote == '<' and first == 'src':
            yield f'{where}: <{spelling}> is ours: spell it with quotes'


def check(root):
    modules = read_modules(root)
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
