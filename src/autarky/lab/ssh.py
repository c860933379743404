"""The test hosts of a lab over ssh, as real machines are reached: `ssh -F DIRECTORY/ssh_config n1`.

A lab has one key pair of its user's, and each host a key of its own; both are made where they are missing
and readable by root only. `known_hosts` beside them names every host's key, so that nothing is trusted
unseen and no file of the user's is touched.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_ssh_private_key,
)

from autarky.store import write_private

USER_KEY = "id_ed25519"
HOST_KEY = "ssh_host_ed25519_key"


def give_keys(lab: Path, host: Path) -> None:
    """Put what sshd needs into a host's own files (its overlay `upper`): its key, and who may enter as root."""
    write_private(host / "upper/etc/ssh" / HOST_KEY, _key(host / HOST_KEY))
    write_private(host / "upper/root/.ssh/authorized_keys", _public(_key(lab / "ssh" / USER_KEY)) + b"\n")
    # The overlay takes a directory's mode from the upper side, and `write_private` closes what it makes.
    (host / "upper/etc/ssh").chmod(0o755)


def write_config(lab: Path, hosts: Mapping[str, str]) -> Path:
    """Write ssh_config and known_hosts for these hosts (name → address); the path of ssh_config."""
    known_hosts = lab / "ssh/known_hosts"
    keys = {name: _public(_key(lab / "hosts" / name / HOST_KEY)).decode() for name in hosts}
    lines = [f"{name},{address} {keys[name]}" for name, address in hosts.items()]
    write_private(known_hosts, "".join(f"{line}\n" for line in lines).encode())
    named = "".join(f"Host {name}\n  HostName {address}\n" for name, address in hosts.items())
    config = lab / "ssh_config"
    write_private(config, (named + _for_all(lab, known_hosts)).encode())
    return config


def _for_all(lab: Path, known_hosts: Path) -> str:
    """The first value of an option holds: what is given for one host above, or in a file of the user's, wins."""
    return f"""\
Host *
  User root
  IdentityFile {_quoted(lab / "ssh" / USER_KEY)}
  IdentitiesOnly yes
  UserKnownHostsFile {_quoted(known_hosts)}
  GlobalKnownHostsFile /dev/null
  StrictHostKeyChecking yes
"""


def _quoted(path: Path) -> str:
    """As ssh_config wants it: % begins a token, and spaces need quotes."""
    return '"' + str(path).replace("%", "%%") + '"'


def _key(path: Path) -> bytes:
    """The private key of that file, made where there is none."""
    if not path.exists():
        key = Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
        write_private(path, key)
    return path.read_bytes()


def _public(private: bytes) -> bytes:
    return load_ssh_private_key(private, None).public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
