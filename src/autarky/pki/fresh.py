"""Leaves that are issued when they are asked for, beside the files of a pki directory.

For a new host: the first certificates of a control node, which its agent keeps from then on, without the machine that
ran `up`. None of them is written here, and each instance issues new ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from autarky.errors import UserError
from autarky.model.files import CertSpec
from autarky.pki.check import authority_of
from autarky.pki.issue import Authority, Pair, issue_leaf
from autarky.pki.keys import Algorithm


@dataclass(frozen=True, slots=True)
class Fresh:
    """specs: each with how long it lives."""

    specs: Sequence[tuple[CertSpec, timedelta]]
    algorithm: Algorithm
    now: datetime


@dataclass(slots=True)
class IssuingFiles(Mapping[str, bytes]):
    """Relative name ("etcd/server-n1.crt") → PEM: of the files, and of what is issued now. A leaf that is in both is
    issued. Holds private keys: do not log. UserError where the CA's key is not among the files."""

    files: Mapping[str, bytes] = field(repr=False)
    fresh: Fresh = field(repr=False)
    _issued: dict[str, Pair] = field(default_factory=dict, repr=False)

    def __getitem__(self, name: str) -> bytes:
        stem, _, end = name.rpartition(".")
        found = next((one for one in self.fresh.specs if one[0].name == stem), None)
        if found is None or end not in ("crt", "key") or self._was_signed_elsewhere(name, found[0]):
            return self.files[name]
        if stem not in self._issued:
            spec, life = found
            self._issued[stem] = issue_leaf(spec, self._authority(spec), self.fresh.algorithm, self.fresh.now, life)
        pair = self._issued[stem]
        return pair.certificate if end == "crt" else pair.key

    def _was_signed_elsewhere(self, name: str, spec: CertSpec) -> bool:
        """Without the CA's key: it was requested for this run."""
        return name in self.files and f"{spec.ca}.key" not in self.files

    def _authority(self, spec: CertSpec) -> Authority:
        certificate, key = f"{spec.ca}.crt", f"{spec.ca}.key"
        if key not in self.files:
            raise UserError(
                f"{spec.name} cannot be issued: the key of the CA {spec.ca} is not in the cluster's directory",
                fix="run `autarky up` where that key is",
            )
        return authority_of(Pair(self.files[certificate], self.files[key]), certificate, key, self.fresh.now)

    def __iter__(self) -> Iterator[str]:
        yield from self.files
        names = (f"{spec.name}.{end}" for spec, _ in self.fresh.specs for end in ("crt", "key"))
        yield from (name for name in names if name not in self.files)

    def __len__(self) -> int:
        return sum(1 for _ in self)
