"""What is wrong with the list of cases: it fails tier 0. Pure.

Contract: every case has a record and every record a case; each has passed once, and not longer ago than two turns
of the rotation take; none is so long that no run of CI could take it.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence

from cases.listing import Case
from cases.pieces import Piece, pieces_of
from cases.records import Record, path_of
from cases.rotation import TOO_OLD_DAYS, grown_old
from cases.tree import ROOT

LONGEST_SECONDS = 600
LONGEST_TIMEOUT = 900


def problems(cases: Sequence[Case], records: Mapping[str, Record], scenarios: Mapping[str, str]) -> list[str]:
    """In sentences, each with what corrects it. `scenarios`: case → its hash now."""
    return [
        *_unlisted(cases, records, scenarios),
        *_without_first_pass(cases, records),
        *_gone(cases, records, scenarios),
        *_waiting(pieces_of(cases, records), records),
        *_long(cases, records),
    ]


def _unlisted(cases: Iterable[Case], records: Mapping[str, Record], scenarios: Mapping[str, str]) -> Iterable[str]:
    names = former_names(cases, records, scenarios)
    for case in cases:
        if case.id in names:
            old = names[case.id]
            yield f"{case.id} is not listed; when it was {old}: ./run cases rename '{old}' '{case.id}'"
        elif case.id not in records:
            yield f"{case.id} is not listed: ./run cases add"


def _without_first_pass(cases: Iterable[Case], records: Mapping[str, Record]) -> Iterable[str]:
    """Whichever commit added it: where only the last one were asked, the next would let it through."""
    for case in cases:
        if case.id in records and not records[case.id].passed:
            yield f"{case.id} has never passed: ./run cases run '{case.id}'"


def _gone(cases: Iterable[Case], records: Mapping[str, Record], scenarios: Mapping[str, str]) -> Iterable[str]:
    known = {case.id for case in cases}
    renamed = set(former_names(cases, records, scenarios).values())
    for case in records:
        if case not in known and case not in renamed:
            yield f"{case} has a record and is no case any more: git rm '{path_of(case).relative_to(ROOT)}'"


def _waiting(pieces: Sequence[Piece], records: Mapping[str, Record]) -> Iterable[str]:
    for case, passed in grown_old(pieces, records, TOO_OLD_DAYS).items():
        waited = f"passed last on {passed}, which is more than {TOO_OLD_DAYS} days before the latest pass"
        yield f"{case} {waited}: ./run cases run '{case}'"


def _long(cases: Iterable[Case], records: Mapping[str, Record]) -> Iterable[str]:
    for case in cases:
        seconds = records.get(case.id, Record()).seconds or 0.0
        if seconds > LONGEST_SECONDS or case.timeout > LONGEST_TIMEOUT:
            limits = f"{LONGEST_SECONDS} s, or its timeout longer than {LONGEST_TIMEOUT} s"
            yield f"{case.id} takes longer than {limits}: cut it into several"


# --- renames ------------------------------------------------------------------------------------------


def former_names(cases: Iterable[Case], records: Mapping[str, Record], scenarios: Mapping[str, str]) -> dict[str, str]:
    """Case that is not listed → the record without a case that it probably had; each is given once.

    The same scenario under another name is certain; else the nearest name.
    """
    cases = list(cases)
    left = [case for case in records if case not in {one.id for one in cases}]
    new = [case.id for case in cases if case.id not in records]
    found = {}
    for sure in (True, False):
        for case in new:
            candidates = [old for old in left if not sure or is_certain(case, old, records, scenarios)]
            nearest = difflib.get_close_matches(case, candidates, n=1, cutoff=0.0 if sure else 0.85)
            if case not in found and nearest:
                found[case] = nearest[0]
                left.remove(nearest[0])
    return found


def is_certain(case: str, old: str, records: Mapping[str, Record], scenarios: Mapping[str, str]) -> bool:
    """Whether the record is of this very scenario."""
    same_parameters = case.partition("[")[2] == old.partition("[")[2]
    return same_parameters and records[old].scenario is not None and records[old].scenario == scenarios.get(case)
