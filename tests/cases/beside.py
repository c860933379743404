"""What lies beside the scenarios and belongs to one module of them: it counts in the hashes of those that use it. Pure.

That is a helper module which no other module of scenarios uses, by import, through other helpers, or by the name of its
file; and a data file, for whoever names it. What conftest uses belongs to all.
Danger: that depends on what the others use. A helper that gets a second user touches those of the first.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterable, Mapping

from cases.scenario import files_named, syntax_of

CONFTEST = "conftest.py"


def own_files(files: Mapping[str, bytes]) -> dict[str, dict[str, str]]:
    """Module of scenarios → file that it names → the hash of what that brings: for a helper its syntax, and all that it
    names itself. `files`: all that are there, by name."""
    modules = {name: ast.parse(content) for name, content in files.items() if name.endswith(".py")}
    named = {name: (files_named(module) & files.keys()) - {name} for name, module in modules.items()}
    shared = _shared(named)
    texts = {name: syntax_of(module) for name, module in modules.items()}
    texts |= {name: hashlib.sha256(content).hexdigest() for name, content in files.items() if name not in modules}

    def brings(name: str) -> str:
        found = sorted({name, *_reached(name, named, without=shared)})
        return hashlib.sha256("\n".join(f"{one}={texts[one]}" for one in found).encode()).hexdigest()[:12]

    return {name: {one: brings(one) for one in named[name] - shared} for name in modules if is_test(name)}


def is_test(name: str) -> bool:
    return name.startswith("test_") and name.endswith(".py")


def _shared(named: Mapping[str, Iterable[str]]) -> set[str]:
    """The modules that are no helpers of one module of scenarios alone."""
    users: dict[str, set[str]] = {name: set() for name in named}
    for user in named:
        if is_test(user) or user == CONFTEST:
            for helper in _reached(user, named) & named.keys():
                users[helper].add(user)
    return {name for name, found in users.items() if is_test(name) or len(found) != 1 or CONFTEST in found}


def _reached(start: str, named: Mapping[str, Iterable[str]], *, without: Iterable[str] = ()) -> set[str]:
    """All that a file names, and that these name in turn."""
    reached: set[str] = set(without)
    waiting = [start]
    while waiting:
        more = set(named.get(waiting.pop(), ())) - reached
        reached |= more
        waiting += more
    return reached.difference(without)
