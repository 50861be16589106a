#!/usr/bin/env python3
"""Fails on files of more than 1000 lines, functions of more than 120 lines, C functions with a cyclomatic complexity
above 20 and folders of more than 25 files, unless tools/limits.txt lists them with a reason. An entry that is no longer needed fails too, so that the list stays honest.

Functions are found by our format: a function's braces stand alone in column 0. Their complexity is 1, and 1 for each if,
for, while, case, ?, && and ||.

usage: check_limits.py [ROOT]    exit status 1 if anything was found
"""
import ast
import re
import sys
from pathlib import Path

FILE_LINES = 1000
FUNCTION_LINES = 120
COMPLEXITY = 20
FOLDER_FILES = 25
FOLDERS = ['src', 'include', 'backends', 'tests', 'tools', 'bench', 'examples', 'cmake', 'python', 'proto', 'docs', 'deploy', '.ci']
SUFFIXES = {'.c', '.h', '.cc', '.py', '.sh', '.cmake', ''}
SKIP = {'corpus', '__pycache__', 'fixtures', 'models'}


# Comments, strings and characters, in which words and operators do not count.
NOT_CODE = re.compile(r"""/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'""", re.S)
DECISION = re.compile(r'\b(?:if|for|while|case)\b|\?|&&|\|\|')


def complexity(body):
    return 1 + len(DECISION.findall(NOT_CODE.sub('', body)))


def c_functions(lines):
    """(name, number of lines from the opening brace to the closing one, complexity)."""
    start = None
    for number, line in enumerate(lines):
        if line == '{':
            start = number
        elif line == '}' and start is not None:
            signature = NOT_CODE.sub('', '\n'.join(lines[max(0, start - 12):start]))
            names = re.findall(r'(\w+)\s*\([^;{}]*$', re.sub(r'\([^()]*\)', '(', signature))
            yield (names[-1] if names else f'line {start + 1}'), number - start + 1, complexity('\n'.join(lines[start:number]))
            start = None


def python_functions(text):
    """As c_functions, without complexity."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.name, node.end_lineno - node.lineno + 1, 0


def files(root):
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob('*')):
            parts = path.relative_to(root).parts
            if path.is_file() and path.suffix in SUFFIXES and not SKIP.intersection(parts):
                yield path


def folders_over_limit(root):
    """As over_limit. Files of data count as well, compiled Python does not."""
    for top in FOLDERS:
        for folder in (root / top, *sorted((root / top).rglob('*/'))):
            if not folder.is_dir() or SKIP.intersection(folder.relative_to(root).parts):
                continue
            count = sum(1 for path in folder.iterdir() if path.is_file() and path.suffix != '.pyc')
            if count > FOLDER_FILES:
                name = f'{folder.relative_to(root)}/'
                yield name, f'{name}: {count} files, {FOLDER_FILES} allowed'


def over_limit(root):
    """Key as in limits.txt -> message."""
    found = dict(folders_over_limit(root))
    for path in files(root):
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue
        name = str(path.relative_to(root))
        lines = text.splitlines()
        if len(lines) > FILE_LINES:
            found[name] = f'{name}: {len(lines)} lines, {FILE_LINES} allowed'
        functions = []
        if path.suffix in ('.c', '.h', '.cc'):
            functions = c_functions(lines)
        elif path.suffix == '.py':
            functions = python_functions(text)
        for function, count, decisions in functions:
            if count > FUNCTION_LINES:
                found[f'{name}:{function}'] = f'{name}: {function} has {count} lines, {FUNCTION_LINES} allowed'
            elif decisions > COMPLEXITY:
                found[f'{name}:{function}'] = f'{name}: {function} has a cyclomatic complexity of {decisions}, {COMPLEXITY} allowed'
    return found


def read_exceptions(path):
    """Lines 'path[:function]  reason'; a folder's path ends with a slash."""
    exceptions = {}
    for line in path.read_text().splitlines() if path.exists() else []:
        if line.strip() and not line.startswith('#'):
            key, _, reason = line.partition(' ')
            exceptions[key] = reason.strip()
    return exceptions


def main():
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent.parent).resolve()
    found = over_limit(root)
    exceptions = read_exceptions(root / 'tools' / 'limits.txt')
    problems = [message for key, message in found.items() if not exceptions.get(key)]
    problems += [f'tools/limits.txt: {key} is within the limits now: remove it'
                 for key in exceptions if key not in found]
    for problem in problems:
        print(problem)
    print(f'limits: {len(problems)} problems' if problems else 'limits: ok')
    return 1 if problems else 0


if __name__ == '__main__':
    sys.exit(main())
