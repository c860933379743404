"""CAs of a cluster's pki directory: created once or copied from the user's own, and kept permanently.

Contract: a CA that a machine may already trust is never replaced, because everything that trusts it would
have to change at once; any problem with it is a UserError. The key is always written before the
certificate, so a key alone is what a kill leaves behind, and nothing can trust it yet.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from autarky.errors import UserError
from autarky.model.cluster import CertificateSettings
from autarky.pki.check import authority_of
from autarky.pki.issue import Authority, Pair, issue_ca
from autarky.pki.keys import PrivateKey, load_key, new_key

COMMON_NAMES = {"ca": "kubernetes", "front-proxy-ca": "kubernetes-front-proxy", "etcd/ca": "etcd"}
"""File stem → common name of a CA that we make."""


@dataclass(frozen=True, slots=True)
class PairFiles:
    """Where a certificate and its key are, or would be: DIRECTORY/NAME.crt and .key."""

    directory: Path
    name: str

    @property
    def certificate(self) -> Path:
        return self.directory / f"{self.name}.crt"

    @property
    def key(self) -> Path:
        return self.directory / f"{self.name}.key"

    def read(self) -> Pair | None:
        """The content, or None unless both files are there."""
        return Pair.read(self.certificate, self.key)


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be done for one CA: nothing when `new` is None, else write `new`, because of `reason`."""

    authority: Authority
    new: Pair | None = None
    reason: str = ""


def plan_authority(kept: PairFiles, settings: CertificateSettings, now: datetime) -> Plan:
    """What to do for one CA, with the CA that there will be. Writes nothing.

    Raises UserError when what is kept, or what is given, cannot be used, or when they differ.
    """
    given = _given(kept.name, settings, now)
    pair = kept.read()
    if pair is not None:
        authority = authority_of(pair, str(kept.certificate), str(kept.key), now)
        _refuse_exchange(kept, authority, given)
        return Plan(authority)
    if kept.certificate.exists():
        raise _key_lost(kept)
    if given is not None:
        _refuse_other_key(kept, given.authority)
        return given
    made = issue_ca(COMMON_NAMES[kept.name], _own_key(kept, settings), now, settings.ca_days)
    return Plan(authority_of(made, str(kept.certificate), str(kept.key), now), made, "a new CA")


def _given(name: str, settings: CertificateSettings, now: datetime) -> Plan | None:
    """The user's own CA of this name. Only the cluster's CA must be given where a directory is."""
    if settings.ca_directory is None:
        return None
    files = PairFiles(Path(settings.ca_directory), name)
    missing = [path for path in (files.certificate, files.key) if not path.exists()]
    if len(missing) == 2 and name != "ca":
        return None
    pair = files.read()
    if missing or pair is None:
        raise UserError(
            f"{' and '.join(str(path) for path in missing)} cannot be found",
            where="certificates.caDirectory",
            fix=f"put both {files.certificate} and {files.key} there, or leave caDirectory out",
        )
    authority = authority_of(pair, str(files.certificate), str(files.key), now)
    return Plan(authority, pair, f"your own, from {files.certificate}")


def _own_key(kept: PairFiles, settings: CertificateSettings) -> PrivateKey:
    """A key that a kill left without its certificate is reused: a new one might overwrite the key of an old CA."""
    if not kept.key.exists():
        return new_key(settings.key_algorithm)
    try:
        return load_key(kept.key.read_bytes())
    except ValueError as error:
        raise UserError(
            f"there is no {kept.certificate.name} beside it, and it is unreadable: {error}",
            where=str(kept.key),
            fix="restore both files from a control node or a backup; if no cluster uses them, move the key away",
        ) from error


def _key_lost(kept: PairFiles) -> UserError:
    return UserError(
        f"{kept.key.name} is missing beside it, so nothing can be signed that the cluster trusts",
        where=str(kept.certificate),
        fix=f"restore {kept.key} from a backup; if no cluster uses this CA, move the certificate away",
    )


def _refuse_exchange(kept: PairFiles, authority: Authority, given: Plan | None) -> None:
    if given is not None and given.authority.certificate != authority.certificate:
        raise UserError(
            f"the cluster's CA ({kept.certificate}) differs from the one in certificates.caDirectory",
            fix="take caDirectory out of the cluster file, or give the CA that the cluster has",
        )


def _refuse_other_key(kept: PairFiles, given: Authority) -> None:
    """A torn copy of the given CA leaves its key; any other key is somebody's, and not ours to overwrite."""
    if not kept.key.exists():
        return
    try:
        torn = load_key(kept.key.read_bytes()).public_key() == given.key.public_key()
    except ValueError:
        torn = False
    if not torn:
        raise UserError(
            "it belongs to a different CA than the one in certificates.caDirectory",
            where=str(kept.key),
            fix="move it away if no cluster uses it, or take caDirectory out of the cluster file",
        )
