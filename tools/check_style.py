#!/usr/bin/env python3
"""Fails on what clang-format does not enforce: a body of if, for, while, else or do without braces, a function or object of
src/ that is not static and begins neither with mr_ nor with a word of its path, a type mr_... that has two definitions, and a member that a comment after it splits into two lines.

The words of src/sched/sequence/form.c are sched, sequence and form; parts between underscores count as words, and so does the
singular of a plural.

usage: check_style.py [ROOT]    exit status 1 if anything was found
"""
import re
import sys
from pathlib import Path

from check_includes import CODE, DIRECTIVE, code_of, definitions, sources

FOLDERS = ['src', 'include', 'backends', 'tests', 'bench', 'examples']
CONTROL = re.compile(r'(?<![\w#])(if|for|while|switch|\w+_FOREACH(?:_SAFE|_REVERSE)?)\s*\(|\b(else|do)\b')
TYPE = re.compile(r'\b(?:struct|union|enum) (mr_\w+)\s*\{')
SPLIT = re.compile(r'^( +)[\w ()*]*\w\n\1 {4}(\**\w+)(?:\[\w*\])?; /\*', re.M)


def after_brackets(text, at):
    """The position after the bracket that closes the one at `at`."""
    depth = 0
    for i in range(at, len(text)):
        depth += {'(': 1, ')': -1}.get(text[i], 0)
        if depth == 0:
            return i + 1
    return len(text)


def bare_bodies(text):
    """(line, word) of each control word whose body has no braces; text is without comments, strings and directives."""
    for match in CONTROL.finditer(text):
        word = match[1] or match[2]
        end = after_brackets(text, match.end() - 1) if match[1] else match.end()
        rest = text[end:end + 200].lstrip()
        if rest.startswith('{') or word == 'else' and re.match(r'if\b', rest):
            continue
        closes_do = word == 'while' and rest.startswith(';') and text[:match.start()].rstrip().endswith('}')
        if not closes_do:
            yield text.count('\n', 0, match.start()) + 1, word


def blank(match):
    """As many lines, without text."""
    return ';' + '\n' * match[0].count('\n') if match[0][0] in '"\'' else '\n' * match[0].count('\n')


def check_braces(root):
    for folder in FOLDERS:
        for path in sources(root / folder):
            text = DIRECTIVE.sub(blank, CODE.sub(blank, path.read_text(errors='replace')))
            for line, word in bare_bodies(text):
                yield f'{path.relative_to(root)}:{line}: the body of {word} has no braces'


def words_of(path):
    """What names of a .c file may begin with; `path` is relative to src/. A name in capitals is the call of a macro. Python
    looks for PyInit_<module>."""
    words = {'mr', 'main', 'PyInit'}
    for part in path.with_suffix('').parts:
        for word in (part, *part.split('_')):
            words |= {word, word.removesuffix('s')}
    return words


def check_names(root):
    for path in sources(root / 'src'):
        if path.suffix != '.c':
            continue
        words = words_of(path.relative_to(root / 'src'))
        for name, is_static in definitions(code_of(path)):
            if not is_static and not name.isupper() and name.split('_')[0] not in words:
                yield f'{path.relative_to(root)}: {name} begins neither with mr_ nor with a word of its path: make it static or rename it'


def check_types(root):
    """The include that is missing or one too many decides which of two it is."""
    first = {}
    for folder in ('include', 'src', 'backends'):
        for path in sources(root / folder):
            for match in TYPE.finditer(code_of(path)):
                where = first.setdefault(match[1], path.relative_to(root))
                if where != path.relative_to(root):
                    yield f'{path.relative_to(root)}: {match[1]} is defined in {where} as well'


def check_members(root):
    for folder in FOLDERS:
        for path in sources(root / folder):
            text = path.read_text(errors='replace')
            for match in SPLIT.finditer(text):
                line = text.count('\n', 0, match.start(2)) + 1
                yield f'{path.relative_to(root)}:{line}: the comment of {match[2]} splits its declaration, put it above'


def main():
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent.parent).resolve()
    problems = [*check_braces(root), *check_names(root), *check_types(root), *check_members(root)]
    for problem in problems:
        print(problem)
    print(f'style: {len(problems)} problems' if problems else 'style: ok')
    return 1 if problems else 0


if __name__ == '__main__':
    sys.exit(main())
