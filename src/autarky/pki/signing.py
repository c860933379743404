"""Certificates that are signed on a different machine than the one that has the leaf's key: request and answer.

Contract: both are one line of JSON. The question holds requests (PKCS#10) and no private key; the answer certificates.
Whoever runs the signer is root on a control node, who can read the CA keys themselves: it signs what it is asked to.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography import x509

from autarky.errors import UserError
from autarky.model.files import CertSpec
from autarky.parsing import parsed
from autarky.pki.check import authority_of, is_due, is_signed_by
from autarky.pki.issue import Pair, read_pair, request_for, sign_leaf
from autarky.pki.keys import Algorithm, PrivateKey, new_key
from autarky.pki.requests import read_request
from autarky.pki.unreadable import UNREADABLE


@dataclass(frozen=True, slots=True)
class Request:
    """A leaf that is wanted, and its key, which stays where it was made."""

    spec: CertSpec
    key: PrivateKey = field(repr=False)

    @classmethod
    def new(cls, spec: CertSpec, algorithm: Algorithm) -> Request:
        return cls(spec, new_key(algorithm))


def question(requests: Sequence[Request], life: timedelta) -> bytes:
    """What the signer is asked. Raises UserError for names that X.509 cannot hold."""
    asked = [{"spec": asdict(one.spec), "request": request_for(one.spec, one.key).decode()} for one in requests]
    return (json.dumps({"life": life.total_seconds(), "requests": asked}) + "\n").encode()


def answer(asked: bytes, directory: Path, now: datetime) -> bytes:
    """Sign with the CAs in the directory. Raises UserError for what is no question, and for a CA that is not there."""
    try:
        content = parsed(asked)
        life = timedelta(seconds=float(content["life"]))
        wanted = [(_spec(one["spec"]), str(one["request"]).encode()) for one in content["requests"]]
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"what is to be signed cannot be understood: {error!r}") from error
    certificates = [_signed(spec, request, directory, now, life) for spec, request in wanted]
    return (json.dumps({"certificates": certificates}) + "\n").encode()


def answered(content: bytes, requests: Sequence[Request]) -> list[bytes]:
    """The certificates, in the order of the requests. Raises UserError for what is no answer to them."""
    try:
        certificates = [str(each).encode() for each in parsed(content)["certificates"]]
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"what the signer says cannot be understood: {error!r}") from error
    if len(certificates) != len(requests):
        raise UserError(f"the signer has answered {len(certificates)} of {len(requests)} requests")
    return certificates


def is_good(pair: Pair, ca_pem: bytes, now: datetime, life: timedelta) -> bool:
    """Whether this CA has signed the pair's certificate, and a third of its life is left."""
    try:
        certificate, _ = read_pair(pair)
        issuer = x509.load_pem_x509_certificate(ca_pem)
    except UNREADABLE:
        return False
    end = certificate.not_valid_after_utc
    return is_signed_by(certificate, issuer) and (not is_due(end, life, now) or end == issuer.not_valid_after_utc)


def _spec(content: Mapping[str, Any]) -> CertSpec:
    fields: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in content.items()}
    return CertSpec(**fields)


def _signed(spec: CertSpec, request: bytes, directory: Path, now: datetime, life: timedelta) -> str:
    key = read_request(request).key
    certificate_file, key_file = directory / f"{spec.ca}.crt", directory / f"{spec.ca}.key"
    try:
        pair = Pair(certificate_file.read_bytes(), key_file.read_bytes())
    except OSError as error:
        raise UserError(f"{error.filename} cannot be read: {error.strerror}") from error
    authority = authority_of(pair, str(certificate_file), str(key_file), now)
    return sign_leaf(spec, authority, key, now, life).decode()
