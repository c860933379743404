"""Objects of the API that differ from others in one place."""

from __future__ import annotations

from copy import deepcopy
from typing import Any


def changed(obj: Any, *path: Any, to: Any) -> Any:
    """A copy with another value there: of an object's field, or of a list's item. Without a path that value itself."""
    if not path:
        return to
    found = deepcopy(obj)
    place = found
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = to
    return found
