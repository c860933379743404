from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from autarky.errors import UserError
from autarky.net.tls import client_context
from fakes.web import certificates


def test_only_the_given_ca_is_trusted() -> None:
    context = client_context(certificates().ca)
    assert len(context.get_ca_certs()) == 1
    assert context.verify_mode == ssl.CERT_REQUIRED
    assert context.check_hostname


def test_old_protocols_are_not_spoken() -> None:
    assert client_context(certificates().ca).minimum_version == ssl.TLSVersion.TLSv1_2


def open_files() -> set[str]:
    return {path.name for path in Path("/proc/self/fd").iterdir()}


def test_no_key_is_left_open() -> None:
    before = open_files()
    found = certificates()
    client_context(found.ca, found.client.certificate, found.client.key)
    assert open_files() == before


@pytest.mark.parametrize("ca", [b"no certificate", b"\xff\xfe", b""])
def test_what_is_no_ca_is_refused(ca: bytes) -> None:
    with pytest.raises(UserError, match="not a PEM certificate"):
        client_context(ca)


def test_a_key_of_another_certificate_is_refused_and_not_shown() -> None:
    found = certificates()
    with pytest.raises(UserError, match="cannot be used") as caught:
        client_context(found.ca, found.client.certificate, found.server.key)
    assert "PRIVATE" not in str(caught.value)


def test_a_client_certificate_that_is_none_is_refused() -> None:
    with pytest.raises(UserError, match="cannot be used"):
        client_context(certificates().ca, b"garbage", b"garbage")
