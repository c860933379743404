"""Parse JSON from untrusted writers into objects that are safe to process further.

Contract: `parsed` is json.loads, but what lies deeper than DEPTH is null, and it never ends with a RecursionError:
invalid JSON is a ValueError, nothing else is raised. (What is cut away need not be valid JSON.)

Why: whoever may write an API object may write JSON of any form into its managedFields, up to 10,000 levels deep, and
every client lists it. Python's recursion is limited, to 1000 calls by default: json.loads raises RecursionError there,
which is no ValueError, and one such object would blind every client that lists it. What can be parsed is not safe
either: json.dumps, copies and our comparisons recurse the same way from deeper in the stack, some with several calls
per level.

Danger: an object that was cut must not be written back as if it were complete; nothing that we write back is so deep.
"""

from __future__ import annotations

import json
import re
from typing import Any

DEPTH = 100
"""Levels of lists and objects that are kept, including those of the list page or the watch event around an object. A
pod has some 15, its managedFields some 20, the schema of a large CRD some 50; of the 1000 calls that Python allows, our
comparisons need up to 4 per level."""
_STRING = r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?'
_BRACKET = re.compile(rf'(?:[^"\[\]{{}}]++|{_STRING})*+(?:([\[\]{{}}])|\Z)', re.DOTALL)
"""Whatever comes before a bracket, and the bracket, or the end; brackets in strings are none. Nothing is looked at
twice: it matches everywhere, and a string without an end goes to the end of the text."""


def parsed(text: str | bytes) -> Any:
    """Parse, without what is nested too deeply. Raises ValueError for invalid JSON."""
    try:
        found = json.loads(text)
    except RecursionError:
        return json.loads(cut(text))
    return json.loads(cut(text)) if _is_deep(found) else found


def cut(text: str | bytes) -> str:
    """The text with null in place of every list and object that is deeper than DEPTH. Linear, and no call goes down."""
    complete = text if isinstance(text, str) else text.decode(json.detect_encoding(text), "surrogatepass")
    kept, begin, depth = [], 0, 0
    for found in _BRACKET.finditer(complete):
        if found[1] in ("[", "{"):
            depth += 1
            if depth == DEPTH + 1:
                kept += [complete[begin : found.start(1)], "null"]
                begin = len(complete)  # the text may break off in there
        elif found[1]:
            if depth == DEPTH + 1:
                begin = found.end()
            depth -= 1
    return "".join((*kept, complete[begin:]))


def _is_deep(found: Any) -> bool:
    """Level by level: a fraction of what parsing costs."""
    level = [found] if isinstance(found, dict | list) else []
    for _ in range(DEPTH):
        level = [
            value
            for one in level
            for value in (one.values() if type(one) is dict else one)
            if type(value) is dict or type(value) is list
        ]
        if not level:
            return False
    return True
