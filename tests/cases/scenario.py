"""The hash of one scenario: whether a change of a module touches this test or only its neighbours.

In it: the test function and every name of its module that it reaches (helpers, constants, fixtures, also automatic
ones), as syntax: comments, layout and docstrings do not count, nor the test's own name, nor marks that only say when
and how long it runs. What lies beside its module and is named counts where it belongs to that module alone (`beside`):
a change of a helper that several share touches no scenario by itself. Nor does it count where the product has
something, or under which name.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator, Mapping

_SCHEDULING = {"apart", "e2e", "rotation", "chain", "needs", "shares", "timeout"}
PRODUCT = "autarky"
Functions = (ast.FunctionDef, ast.AsyncFunctionDef)


def scenario_hashes(source: str, beside: Mapping[str, str] | None = None) -> dict[str, str]:
    """Test → hash, for all tests of a module; a test of a class is named `Class::test`. `beside`: file that belongs to
    the module → the hash of what it brings."""
    module = ast.parse(source)
    defined, imported = _definitions(module), _imported(module)
    automatic = {name for name, texts in defined.items() if any(_is_automatic(one) for one in texts)}
    found = {}
    for name, function, around in _tests(module):
        reached = _reached([function, *around], defined, automatic)
        texts = [_text(function, nameless=True), *(f"{one}={_text(n)}" for one in reached for n in defined[one])]
        texts += [_text(node) for node in around]
        used = [function, *around, *(node for one in reached for node in defined[one])]
        files = {imported[one] for one in reached if one in imported}.union(*map(files_named, used))
        texts += [f"{file}: {brings}" for file, brings in sorted((beside or {}).items()) if file in files]
        found[name] = hashlib.sha256("\n".join(texts).encode()).hexdigest()[:12]
    return found


def syntax_of(module: ast.Module) -> str:
    """Of all of a helper module; what does not count of a scenario does not count there."""
    defined = _definitions(module)
    others = [node for node in module.body if not any(True for _ in _defined_by(node)) and not _is_text(node)]
    texts = [f"{name}={_text(meaning)}" for name in sorted(defined) for meaning in defined[name]]
    return "\n".join([*texts, *map(_text, others)])


def files_named(node: ast.AST) -> set[str]:
    """Files that may lie beside: of the modules that are imported there, and whatever text may be the name of one."""
    found: set[str] = set()
    for inner in ast.walk(node):
        if isinstance(inner, ast.Import):
            found |= {f"{alias.name}.py" for alias in inner.names}
        elif isinstance(inner, ast.ImportFrom):
            found.add(f"{inner.module}.py")
        elif isinstance(inner, ast.Constant) and isinstance(inner.value, str):
            found.add(inner.value)
    return found


def name_of_test(case: str) -> str:
    """The name by which `scenario_hashes` knows the test of a case: its id without module and parameters."""
    return case.partition("::")[2].partition("[")[0]


def _tests(module: ast.Module) -> Iterator[tuple[str, ast.stmt, list[ast.stmt]]]:
    """Each test with its name and what stands around it in its class."""
    for node in module.body:
        if isinstance(node, Functions) and node.name.startswith("test_"):
            yield node.name, node, []
        if isinstance(node, ast.ClassDef):
            tests = [one for one in node.body if isinstance(one, Functions) and one.name.startswith("test_")]
            around = [one for one in node.body if one not in tests]
            for test in tests:
                yield f"{node.name}::{test.name}", test, around


def _definitions(module: ast.Module) -> dict[str, list[ast.AST]]:
    """Name → the statements of the module that give it a meaning."""
    found: dict[str, list[ast.AST]] = {}
    for node in module.body:
        for name, meaning in _defined_by(node):
            found.setdefault(name, []).append(meaning)
    return found


def _defined_by(node: ast.stmt) -> Iterator[tuple[str, ast.AST]]:
    if isinstance(node, (*Functions, ast.ClassDef)):
        yield node.name, node
    elif isinstance(node, ast.Import | ast.ImportFrom):
        origin = (node.module or "") if isinstance(node, ast.ImportFrom) else ""
        of_the_product = origin.partition(".")[0] == PRODUCT
        for alias in node.names:
            yield alias.asname or alias.name, ast.Constant(PRODUCT if of_the_product else f"{origin}.{alias.name}")
    else:
        for inner in ast.walk(node):
            if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
                yield inner.id, node


def _imported(module: ast.Module) -> dict[str, str]:
    """Name → the file of the module that it is imported from, or stands for."""
    found: dict[str, str] = {}
    for node in module.body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            origin = node.module if isinstance(node, ast.ImportFrom) else None
            found |= {alias.asname or alias.name: f"{origin or alias.name}.py" for alias in node.names}
    return found


def _reached(start: list[ast.stmt], defined: dict[str, list[ast.AST]], automatic: set[str]) -> list[str]:
    """Every name of the module that those statements use, and that these use in turn."""
    reached: set[str] = set()
    waiting = [name for node in start for name in _used(node)] + sorted(automatic)
    while waiting:
        name = waiting.pop()
        if name in defined and name not in reached:
            reached.add(name)
            waiting += [used for node in defined[name] for used in _used(node)]
    return sorted(reached)


def _used(node: ast.AST) -> Iterator[str]:
    """Names, parameters (which may be fixtures), and text, as a fixture may be asked for by its name."""
    for inner in ast.walk(node):
        if isinstance(inner, ast.Name):
            yield inner.id
        elif isinstance(inner, ast.arg):
            yield inner.arg
        elif isinstance(inner, ast.Constant) and isinstance(inner.value, str):
            yield inner.value


def _is_automatic(node: ast.AST) -> bool:
    """A fixture that every test of the module gets."""
    decorators = node.decorator_list if isinstance(node, Functions) else []
    keywords = [keyword for one in decorators if isinstance(one, ast.Call) for keyword in one.keywords]
    return any(keyword.arg == "autouse" for keyword in keywords)


def _text(node: object, *, nameless: bool = False) -> str:
    """The syntax as text of our own: `ast.dump` gives another one from one Python to the next."""
    if isinstance(node, list):
        return f"[{','.join(_text(one) for one in node)}]"
    if not isinstance(node, ast.AST):
        return repr(node)
    parts = [type(node).__name__]
    for field, value in ast.iter_fields(node):
        if field in {"ctx", "kind", "type_comment", "type_params"} or (nameless and field == "name"):
            continue
        parts.append(f"{field}={_text(_without_what_does_not_count(node, field, value))}")
    return f"({' '.join(parts)})"


def _without_what_does_not_count(node: ast.AST, field: str, value: object) -> object:
    if not isinstance(value, list):
        return value
    if field == "decorator_list":
        return [one for one in value if not _only_schedules(one)]
    if field == "body" and isinstance(node, (*Functions, ast.ClassDef)):
        return [one for one in value if not _is_text(one)]
    return value


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _only_schedules(decorator: ast.expr) -> bool:
    mark = decorator.func if isinstance(decorator, ast.Call) else decorator
    return isinstance(mark, ast.Attribute) and mark.attr in _SCHEDULING and ast.unparse(mark.value) == "pytest.mark"
