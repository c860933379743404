"""How many objects a list is asked for at a time. Pure.

Contract: parsing an answer blocks everything else, and takes some twenty times its size in memory: so no answer longer
than LONGEST is read, unless it is of a single object, which the API server bounds (etcd takes no more than 1.5 MB, as
JSON a few times that). A longer one is dropped, and requested again in smaller pages; these grow again while they are
short.

Why: kubelets create pods and certificate requests, tenants create workloads, in any number and size. In pages of 500,
a list of one malicious worker's pods blocks lease renewal for minutes and needs more memory than a machine has.
"""

from __future__ import annotations

FIRST = 100
"""Objects of the first page: of usual ones some hundred kilobytes."""
MOST = 500
"""As kubectl does."""
LONGEST = 2 * 1024 * 1024
"""Bytes of an answer: parsing so many takes some tenths of a second where they are tiny objects, else hundredths."""
_SHRINK, _GROW = 8, 2


def most_bytes(page: int) -> int | None:
    """How much of the answer is read, of a page of so many objects: enough to see that it is too long."""
    return LONGEST + 1 if page > 1 else None


def is_too_long(page: int, length: int) -> bool:
    return page > 1 and length > LONGEST


def smaller(page: int) -> int:
    """After an answer that was too long."""
    return max(1, page // _SHRINK)


def following(page: int, length: int) -> int:
    """After one of so many bytes that was not: larger ones, where there is room to spare."""
    return min(MOST, page * _GROW) if 2 * _GROW * length <= LONGEST else page
