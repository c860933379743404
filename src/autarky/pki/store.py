"""A cluster's pki directory: issue what is missing or no longer right, keep everything else.

Contract: files NAME.crt and NAME.key (and sa.key, sa.pub), 0600 in directories of 0700, each replaced in one
rename, the key always before its certificate. A kill between the two leaves a mismatched pair:
`plan` says so and `ensure` reissues it. CAs and the service account key are never replaced
(authorities.py). One writer at a time: the caller holds the cluster's lock.

Danger: a leaf that is no longer needed (of a removed node) stays here until it expires.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

from autarky.errors import UserError
from autarky.model.cluster import CertificateSettings
from autarky.model.files import CertSpec
from autarky.model.fingerprint import fingerprint
from autarky.pki.authorities import COMMON_NAMES, PairFiles, Plan, plan_authority
from autarky.pki.check import authority_of, expiry, why_renew
from autarky.pki.issue import Authority, Pair, issue_leaf, read_pair
from autarky.pki.keys import key_pem, load_key, new_key, public_pem
from autarky.pki.signing import Request
from autarky.store import write_private

SERVICE_ACCOUNT = "sa"
ADMIN = "super-admin"
_ENDS = ("crt", "key", "pub")
_SUFFIXES = frozenset({".crt", ".key", ".pub"})


@dataclass(slots=True)
class PkiStore:
    """See the module's contract."""

    directory: Path
    lent: dict[str, bytes] = field(default_factory=dict, repr=False)
    """By file name, files borrowed from a control node for this run: used as if they were here, never written here."""
    _settled: bool | None = field(default=None, repr=False)
    """Whether the last `plan` or `ensure` left nothing to issue; None before either."""

    # --- reading ---

    def files(self) -> dict[str, bytes]:
        """Everything in the directory by relative name ("etcd/ca.crt"). Holds private keys: do not log."""
        own = {str(path.relative_to(self.directory)): path.read_bytes() for path in self._paths()}
        return own | self.lent

    def read(self, name: str) -> Pair:
        """The certificate and the key of that name; UserError where one of them is missing."""
        pair = self._pair(name)
        if pair is None:
            raise UserError(
                f"{self._files(name).certificate} or its key has not been issued",
                fix="run `autarky up` to issue certificates",
            )
        return pair

    def fingerprint(self) -> str | None:
        """That of the cluster's CA; None where there is none yet."""
        try:
            return fingerprint(self._files("ca").certificate.read_bytes())
        except FileNotFoundError:
            return None

    def missing_roots(self, specs: Sequence[CertSpec], cas: Collection[str] = ()) -> list[str]:
        """Which CAs of these leafs, of `cas`, and whether the service account key, are not here: `ensure` would make
        them."""
        needed = {spec.ca for spec in specs} | set(cas)
        missing = [name for name in COMMON_NAMES if name in needed and not self._has_ca(name)]
        has_sa = f"{SERVICE_ACCOUNT}.key" in self.lent or self._service_account_paths()[0].exists()
        return [*missing, *([] if has_sa else [SERVICE_ACCOUNT])]

    def _has_ca(self, name: str) -> bool:
        return f"{name}.crt" in self.lent or self._files(name).certificate.exists()

    def complete(self, *names: str) -> bool:
        """Whether the named pairs exist and are intact; without names, whether everything is.

        Everything: the last `plan` or `ensure` left nothing to issue; before either, all pairs in the
        directory are intact and the admin's, without which nothing can be done, is among them.
        """
        if names:
            return all(self._complete(name) for name in names)
        if self._settled is not None:
            return self._settled
        not_here = set(COMMON_NAMES) if self.borrows else set()
        return all(self._complete(name) for name in {ADMIN, *self._names()} - not_here)

    # --- borrowing ---

    @property
    def borrows(self) -> bool:
        """Whether the cluster's CA is here without its key, as `autarky login` leaves it: a control node signs."""
        ca = self._files("ca")
        return ca.certificate.exists() and not ca.key.exists()

    def lend(self, files: Mapping[str, bytes]) -> None:
        """Use these files of a control node for this run. Files here win, except for leaves that are valid for longer
        there: another machine has reissued them since."""
        self.lent = {}
        for name in sorted({name.rpartition(".")[0] for name in files}):
            if self._is_better(name, files):
                self.lent |= {f"{name}.{end}": files[f"{name}.{end}"] for end in _ENDS if f"{name}.{end}" in files}

    def _is_better(self, name: str, files: Mapping[str, bytes]) -> bool:
        own = self._files(name)
        if name in (*COMMON_NAMES, SERVICE_ACCOUNT):
            return not own.key.exists()
        theirs = _pair_in(files, name)
        return theirs is not None and expiry(theirs) > expiry(own.read())

    def requests(self, specs: Sequence[CertSpec], settings: CertificateSettings, now: datetime) -> list[Request]:
        """For each leaf that must be reissued, a key made here and the request to have it signed."""
        authorities = self._authorities(specs, settings, now, ())
        due = [spec for spec in specs if self._why(spec, authorities[spec.ca].authority, settings, now) is not None]
        return [Request.new(spec, settings.key_algorithm) for spec in due]

    def accept(self, request: Request, certificate: bytes, *, keep: bool) -> None:
        """Take over what was signed. `keep`: in this directory; otherwise it is borrowed, and stays on the hosts.

        UserError where it is no answer to the request.
        """
        pair = Pair(certificate, key_pem(request.key))
        try:
            read_pair(pair)
        except ValueError as error:
            raise UserError(f"what was signed for {request.spec.name} cannot be used: {error}") from error
        if keep:
            self._write(request.spec.name, pair)
        else:
            self.lent |= {f"{request.spec.name}.crt": pair.certificate, f"{request.spec.name}.key": pair.key}
        self._settled = None

    # --- issuing ---

    def plan(
        self, specs: Sequence[CertSpec], settings: CertificateSettings, now: datetime, cas: Collection[str] = ()
    ) -> list[str]:
        """What `ensure` would issue and why, as "NAME (reason)". Raises UserError as `ensure` does."""
        authorities = self._authorities(specs, settings, now, cas)
        reasons = [f"{name} ({plan.reason})" for name, plan in authorities.items() if plan.new is not None]
        if self._service_account_is_missing():
            reasons.append(f"{SERVICE_ACCOUNT} (missing)")
        for spec in specs:
            plan = authorities[spec.ca]
            why = "its CA is new" if plan.new is not None else self._why(spec, plan.authority, settings, now)
            if why is not None:
                reasons.append(f"{spec.name} ({why})")
        self._settled = not reasons
        return reasons

    def refuse_unusable(self, settings: CertificateSettings, now: datetime, *, etcd: bool) -> None:
        """Raises what `ensure` would of CAs, given or kept, and of the service account key, before it is known which
        certificates are wanted. `etcd`: whether a CA of etcd is among them."""
        for name in () if self.borrows else COMMON_NAMES:
            files = self._files(name)
            known = settings.ca_directory is not None or files.certificate.exists() or files.key.exists()
            if known and (etcd or name != "etcd/ca"):
                plan_authority(files, settings, now)
        self._service_account_is_missing()

    def ensure(
        self, specs: Sequence[CertSpec], settings: CertificateSettings, now: datetime, cas: Collection[str] = ()
    ) -> list[str]:
        """Issue everything that is missing or no longer right; returns the names of what was issued. `cas`: those that
        are needed besides those that sign these leafs.

        Raises UserError, before anything is written, when a CA or the service account key, given or kept,
        cannot be used.
        """
        authorities = self._authorities(specs, settings, now, cas)
        service_account_is_missing = self._service_account_is_missing()
        self._tidy()
        issued = []
        for name, plan in authorities.items():
            if plan.new is not None:
                self._write(name, plan.new)
                issued.append(name)
        if service_account_is_missing:
            self._write_service_account(settings)
            issued.append(SERVICE_ACCOUNT)
        for spec in specs:
            authority = authorities[spec.ca].authority
            if self._why(spec, authority, settings, now) is not None:
                self._write(spec.name, issue_leaf(spec, authority, settings.key_algorithm, now, _life(settings)))
                issued.append(spec.name)
        self._settled = True
        return issued

    def forget(self, names: Sequence[str]) -> None:
        """Remove these leafs and their keys; what is not there is passed over."""
        for name in names:
            files = self._files(name)
            for path in (files.key, files.certificate):
                path.unlink(missing_ok=True)

    def _authorities(
        self, specs: Sequence[CertSpec], settings: CertificateSettings, now: datetime, cas: Collection[str]
    ) -> dict[str, Plan]:
        """autarky issues none for an external etcd of the user's."""
        needed = {spec.ca for spec in specs} | set(cas)
        return {name: self._plan_authority(name, settings, now) for name in COMMON_NAMES if name in needed}

    def _plan_authority(self, name: str, settings: CertificateSettings, now: datetime) -> Plan:
        lent = _pair_in(self.lent, name)
        if lent is not None:
            where = f"{name} of a control node"
            return Plan(authority_of(lent, where, where, now))
        return plan_authority(self._files(name), settings, now)

    def _why(self, spec: CertSpec, authority: Authority, settings: CertificateSettings, now: datetime) -> str | None:
        pair = self._pair(spec.name)
        if pair is None:
            return "missing"
        return why_renew(pair, spec, authority, settings.key_algorithm, now, _life(settings))

    def _write(self, name: str, pair: Pair) -> None:
        files = self._files(name)
        self._make_directory(files.key.parent)
        write_private(files.key, pair.key)
        write_private(files.certificate, pair.certificate)
        for end in _ENDS:  # what is issued here counts from now on
            self.lent.pop(f"{name}.{end}", None)

    # --- the keys that sign service account tokens ---

    def _service_account_is_missing(self) -> bool:
        """Whether the pair is absent or torn; UserError when it is wrong in a way that no kill explains."""
        if f"{SERVICE_ACCOUNT}.key" in self.lent:
            return False
        key, public = self._service_account_paths()
        if not key.exists():
            if public.exists():
                raise UserError(
                    f"{key.name} is missing beside it, so no token can be signed that the cluster accepts",
                    where=str(public),
                    fix=f"restore {key} from a control node or a backup; if no cluster uses it, move it away",
                )
            return True
        try:
            ours = public_pem(load_key(key.read_bytes()))
        except ValueError as error:
            raise UserError(str(error), where=str(key), fix="restore it from a control node or a backup") from error
        if not public.exists():
            return True
        if ours not in public.read_bytes():
            raise UserError(
                f"it does not belong to {key}", where=str(public), fix="restore both from a control node or a backup"
            )
        return False

    def _write_service_account(self, settings: CertificateSettings) -> None:
        path, public = self._service_account_paths()
        self._make_directory(self.directory)
        key = load_key(path.read_bytes()) if path.exists() else new_key(settings.key_algorithm)
        write_private(path, key_pem(key))
        write_private(public, public_pem(key))

    def _service_account_paths(self) -> tuple[Path, Path]:
        return self.directory / f"{SERVICE_ACCOUNT}.key", self.directory / f"{SERVICE_ACCOUNT}.pub"

    # --- the directory ---

    def _files(self, name: str) -> PairFiles:
        return PairFiles(self.directory, name)

    def _pair(self, name: str) -> Pair | None:
        """The borrowed file, else the one here."""
        return _pair_in(self.lent, name) or self._files(name).read()

    def _complete(self, name: str) -> bool:
        pair = self._pair(name)
        if pair is None:
            return False
        try:
            read_pair(pair)
        except ValueError:
            return False
        return True

    def _paths(self) -> Iterator[Path]:
        for path in sorted(self.directory.rglob("*")):
            if path.suffix in _SUFFIXES and not path.name.startswith(".") and path.is_file():
                yield path

    def _names(self) -> set[str]:
        """The stems of all certificates."""
        return {
            str(path.relative_to(self.directory).with_suffix("")) for path in self._paths() if path.suffix == ".crt"
        }

    def _make_directory(self, directory: Path) -> None:
        """Nobody else may even list the names."""
        missing = [path for path in (directory, *directory.parents) if not path.exists()]
        for path in reversed(missing):
            path.mkdir(mode=0o700, exist_ok=True)
        for path in {self.directory, directory}:
            path.chmod(0o700)

    def _tidy(self) -> None:
        """Remove the temporary files (with keys in them) that a kill has left."""
        for suffix in _SUFFIXES:
            for path in self.directory.rglob(f".*{suffix}.*"):
                path.unlink(missing_ok=True)


def fit_together(roots: Mapping[str, bytes]) -> bool:
    """Whether of each CA the key belongs to the certificate, and the public service account key to the private one. A
    name with one file only is not judged."""
    try:
        for name in COMMON_NAMES:
            if (pair := _pair_in(roots, name)) is not None:
                read_pair(pair)
        key, public = (roots.get(f"{SERVICE_ACCOUNT}.{end}") for end in ("key", "pub"))
        return key is None or public is None or public_pem(load_key(key)) in public
    except ValueError:
        return False


def _pair_in(files: Mapping[str, bytes], name: str) -> Pair | None:
    certificate, key = files.get(f"{name}.crt"), files.get(f"{name}.key")
    return None if certificate is None or key is None else Pair(certificate, key)


def _life(settings: CertificateSettings) -> timedelta:
    return timedelta(days=settings.leaf_days)
