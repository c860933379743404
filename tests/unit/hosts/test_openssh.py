"""Which error follows from what ssh says, and where its sockets lie. Nothing is connected here."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from autarky.errors import Inaccessible, Unreachable, UserError
from autarky.hosts import SshHost
from autarky.hosts.openssh import LONGEST_SOCKET, Master, explain, socket_directory
from autarky.hosts.process import Said

CHANGED = """\
@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@
@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @
@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@
Host key verification failed.
"""


@pytest.mark.parametrize(
    ("said", "kind", "reported"),
    [
        (CHANGED, Inaccessible, "not the known one: WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!; Host key"),
        ("Host key verification failed.\r\n", Inaccessible, "not known here"),
        ("No ED25519 host key is known for x and you have requested strict checking.", Inaccessible, "not known here"),
        ("root@x: Permission denied (publickey,password).", Inaccessible, "accepts none of the keys"),
        ("ssh: Could not resolve hostname x: Name or service not known", Inaccessible, "correct the name x"),
        ("ssh: Could not resolve hostname x: Temporary failure in name resolution", Unreachable, "Temporary"),
        ("c: line 1: Bad configuration option: nonsense", Inaccessible, "rejects its configuration"),
        ("ssh: connect to host x port 22: Connection refused", Unreachable, "Connection refused"),
        ("ssh: connect to host x port 22: No route to host", Unreachable, "No route"),
        ("", Unreachable, "ssh said nothing"),
    ],
)
def test_what_ssh_says_becomes_the_error_that_helps(said, kind, reported):
    error = explain("n1", "ssh://x", said)
    assert type(error) is kind
    assert reported in str(error)
    assert "n1 (ssh://x)" in str(error)


@pytest.mark.parametrize(
    ("url", "typed"),
    [("ssh://x", "ssh x"), ("ssh://anna@x", "ssh anna@x"), ("ssh://anna@x:2222", "ssh ssh://anna@x:2222")],
)
def test_the_remedy_can_be_typed_as_it_is(url, typed):
    error = explain("n1", url, "Host key verification failed.")
    assert isinstance(error, UserError)
    assert f"fingerprint: {typed};" in error.fix


def test_a_socket_has_a_path_that_ssh_can_use_wherever_the_state_lies(monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/run/user/1000")
    near, far = Path("/home/anna/.local/state/autarky/clusters/home/ssh"), Path("/srv") / ("d" * 90) / "ssh"
    assert socket_directory(near) == near
    short = socket_directory(far)
    assert short.parent == Path("/run/user/1000/autarky")
    assert len(f"{short}/0123456789ab") <= LONGEST_SOCKET
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(far))
    assert socket_directory(far).parent == Path(f"/tmp/autarky-{os.getuid()}")
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    assert socket_directory(far) != socket_directory(far.parent)


def test_host_key_checks_are_left_to_the_user():
    line = " ".join(Master("n1", "ssh://n1", Path("/x"), None).session("true")).lower()
    assert "hostkey" not in line
    assert "knownhosts" not in line
    assert "batchmode=yes" in line


def test_connections_by_two_configurations_are_not_shared():
    one, two = (Master("n1", "ssh://n1", Path("/x"), config).session("true") for config in (None, "/etc/c"))
    assert one[one.index("-S") + 1] != two[two.index("-S") + 1]
    assert two[1:3] == ["-F", "/etc/c"]


def test_a_status_that_is_none_is_no_answer(tmp_path):
    """Root over there sees the token of the call, and may write a line of digits behind it."""
    said = Said(bytearray(b"autarky-1 7 7\nout"), bytearray(b"\nautarky-1 " + b"9" * 5000 + b"\n"))
    host = SshHost("n2", "ssh://n2", sockets=tmp_path)
    with pytest.raises(Unreachable, match="the connection was lost while it ran"):
        host._result(["true"], "autarky-1", 0, said)
    said.stderr = bytearray(b"\nautarky-1 255\n")
    assert host._result(["true"], "autarky-1", 0, said).status == 255
