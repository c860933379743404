"""A cluster's pki directory: issue what is missing or no longer right, keep everything else.

Contract: files NAME.crt and NAME.key, 0600, each replaced in one rename. The key is written before the
certificate; a kill between the two leaves a pair that does not belong together, which `plan` sees and
`ensure` issues anew. CAs are never replaced: a CA that is there but broken is an error, because
everything that trusts it would have to change.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from autarky.errors import UserError
from autarky.model.cluster import CertificateSettings
from autarky.model.files import CertSpec
from autarky.pki.check import is_pair, refuse_bad_ca, why_renew
from autarky.pki.issue import Pair, issue_ca, issue_leaf, key_pem, new_key, public_pem
from autarky.store import write_private

CAS = {"ca": "kubernetes", "front-proxy-ca": "kubernetes-front-proxy", "etcd/ca": "etcd"}
"""File stem → common name."""
SERVICE_ACCOUNT = "sa"


class PkiStore:
    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def files(self) -> dict[str, bytes]:
        """Everything in the directory by relative name ("etcd/ca.crt"). Holds private keys: do not log."""
        if not self.directory.is_dir():
            return {}
        paths = sorted(p for p in self.directory.rglob("*") if p.suffix in {".crt", ".key", ".pub"} and p.is_file())
        return {str(path.relative_to(self.directory)): path.read_bytes() for path in paths if path.name[0] != "."}

    def complete(self, *names: str) -> bool:
        """Whether the named pairs (by default the admin's, issued last of all CAs' leafs) are there."""
        return all(self._path(f"{name}.{end}").exists() for name in names or ("super-admin",) for end in ("crt", "key"))

    def plan(self, specs: Sequence[CertSpec], settings: CertificateSettings, now: datetime) -> list[str]:
        """What `ensure` would issue and why, as "NAME (reason)"; raises like `ensure` for bad CAs."""
        reasons = []
        for name in _needed_cas(specs):
            if self._existing_ca(name, now) is None:
                source = "the given CA" if _given(settings, name) is not None else "a new CA"
                reasons.append(f"{name} ({source})")
        if not self._path(f"{SERVICE_ACCOUNT}.key").exists() or not self._path(f"{SERVICE_ACCOUNT}.pub").exists():
            reasons.append(f"{SERVICE_ACCOUNT} (missing)")
        for spec in specs:
            why = self._why(spec, now)
            if why is not None:
                reasons.append(f"{spec.name} ({why})")
        return reasons

    def ensure(self, specs: Sequence[CertSpec], settings: CertificateSettings, now: datetime) -> list[str]:
        """Issue everything that is missing or no longer right; the names of what was issued.

        Raises UserError when a CA, given or kept, cannot be used.
        """
        issued = []
        for name in _needed_cas(specs):
            if self._existing_ca(name, now) is None:
                self._write(name, _given_ca(settings, name, now) or _new_ca(name, settings, now))
                issued.append(name)
        issued += self._ensure_service_account(settings)
        for spec in specs:
            if self._why(spec, now) is not None:
                ca = self._read(spec.ca)
                if ca is None:
                    raise UserError(f"CA {spec.ca} was removed meanwhile", fix="run the command again")
                self._write(spec.name, issue_leaf(spec, ca, settings.key_algorithm, now, settings.leaf_days))
                issued.append(spec.name)
        return issued

    def _why(self, spec: CertSpec, now: datetime) -> str | None:
        pair, ca = self._read(spec.name), self._read(spec.ca)
        if pair is None or ca is None:
            return "missing"
        return why_renew(pair, spec, ca, now)

    def _existing_ca(self, name: str, now: datetime) -> Pair | None:
        """The CA that is kept here; UserError when it is there but cannot be used."""
        pair = self._read(name)
        if pair is None or (not is_pair(pair) and not self._ever_used(name)):
            return None
        refuse_bad_ca(pair, str(self._path(f"{name}.crt")), str(self._path(f"{name}.key")), now)
        return pair

    def _ever_used(self, name: str) -> bool:
        """A CA pair torn by a kill was never used: no leaf of its kind can exist yet."""
        leafs = {
            "ca": "apiserver.crt",
            "front-proxy-ca": "front-proxy-client.crt",
            "etcd/ca": "apiserver-etcd-client.crt",
        }
        return self._path(leafs[name]).exists()

    def _ensure_service_account(self, settings: CertificateSettings) -> list[str]:
        """The public key is written last and only beside its private key."""
        if self._path(f"{SERVICE_ACCOUNT}.pub").exists() and self._path(f"{SERVICE_ACCOUNT}.key").exists():
            return []
        key = new_key(settings.key_algorithm)
        self._path(f"{SERVICE_ACCOUNT}.pub").unlink(missing_ok=True)
        write_private(self._path(f"{SERVICE_ACCOUNT}.key"), key_pem(key))
        write_private(self._path(f"{SERVICE_ACCOUNT}.pub"), public_pem(key))
        return [SERVICE_ACCOUNT]

    def _read(self, name: str) -> Pair | None:
        try:
            return Pair(self._path(f"{name}.crt").read_bytes(), self._path(f"{name}.key").read_bytes())
        except FileNotFoundError:
            return None

    def _write(self, name: str, pair: Pair) -> None:
        write_private(self._path(f"{name}.key"), pair.key)
        write_private(self._path(f"{name}.crt"), pair.certificate)

    def _path(self, name: str) -> Path:
        return self.directory / name


def _needed_cas(specs: Sequence[CertSpec]) -> list[str]:
    return [name for name in CAS if any(spec.ca == name for spec in specs)]


def _new_ca(name: str, settings: CertificateSettings, now: datetime) -> Pair:
    return issue_ca(CAS[name], settings.key_algorithm, now, settings.ca_days)


def _given(settings: CertificateSettings, name: str) -> tuple[Path, Path] | None:
    """The files of a CA the user gave; None when there are none."""
    if settings.ca_directory is None:
        return None
    certificate, key = (Path(settings.ca_directory) / f"{name}.{end}" for end in ("crt", "key"))
    if not certificate.exists() and not key.exists():
        if name == "ca":
            raise UserError(
                f"certificates.caDirectory holds no {certificate.name} and {key.name}",
                where=settings.ca_directory,
                fix="put your CA there as ca.crt and ca.key, or leave caDirectory out",
            )
        return None
    return certificate, key


def _given_ca(settings: CertificateSettings, name: str, now: datetime) -> Pair | None:
    files = _given(settings, name)
    if files is None:
        return None
    missing = [path for path in files if not path.exists()]
    if missing:
        raise UserError(f"{missing[0]} is missing", fix="give the certificate and its key, or neither")
    pair = Pair(files[0].read_bytes(), files[1].read_bytes())
    refuse_bad_ca(pair, str(files[0]), str(files[1]), now)
    return pair
