"""How writes are named, after which a process is stopped (`stop_after_write`, `stop_after_etcds_write`). Pure.

Contract: a write has the same name in each run, with random parts replaced by a star. Where files of one path say
different things, one after the other, a rename has what it says behind that: "rename …/hosted-verdict good" (`says`).
"""

from __future__ import annotations

import re

_RANDOM_OF_ETCD = (
    (re.compile(r"\b(recovery|copy)\.[0-9a-f]{12}\b"), r"\1.*"),
    (re.compile(r"\b(kept|second)\.[0-9TZ]+[.0-9a-f]*"), r"\1.*"),
    (re.compile(r"\b[0-9a-f]{16}-[0-9a-f]{16}(?=\.(wal|snap)$)"), "*"),  # how far etcd's log had come
    (re.compile(r"\.[A-Za-z0-9]{6,8}$"), ".*"),
)
_SAYS = (
    (re.compile(r"/hosted-verdict$"), re.compile(r"^verdict ([a-z]+)$", re.MULTILINE), r" \1"),
    # The note that the very pod has failed which was allowed last: else it is about an earlier one.
    (
        re.compile(r"/kubelet-hosted\.json$"),
        re.compile(r'"allowed": \{\s*"pod": ("[^"]+").*"failed": \{\s*"pod": \1', re.DOTALL),
        " failed",
    ),
    # The mark of a copy of etcd: the former etcd begins to refuse everybody, and the copy takes its place.
    (
        re.compile(r"/etcd-copy\.json$"),
        re.compile(r'^ "(?:(paused)": (?!0\.0)[0-9.]+,\s+"opened": false|(opened)": true)', re.MULTILINE),
        r" \1\2",
    ),
)
"""Path, what is found in the file, and what the name has for that."""


def named(write: str) -> str:
    """A write of what changes etcd: the ids of recoveries and copies, times and random parts are a star."""
    for random, replacement in _RANDOM_OF_ETCD:
        write = random.sub(replacement, write)
    return write


def says(path: str, content: str) -> str:
    """What the name of its rename has behind the path."""
    for paths, words, name in _SAYS:
        if paths.search(path):
            found = words.search(content)
            return "" if found is None else found.expand(name)
    return ""


def is_read(path: str) -> bool:
    """Whether what a file says belongs to the name of its rename."""
    return any(paths.search(path) for paths, _, _ in _SAYS)
