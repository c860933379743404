"""Keys of a lab, and the ssh_config that leads to its hosts. ssh itself reads it here; nobody is reached."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from autarky.lab import ssh


@pytest.fixture
def lab(tmp_path):
    directory = tmp_path / "a lab of 100%"
    ssh.write_config(directory, {"n1": "10.201.7.11", "n10": "10.201.7.20"})
    for name in ("n1", "n10"):
        ssh.give_keys(directory, directory / "hosts" / name)
    return directory


def test_ssh_finds_address_user_and_keys_by_the_hosts_name(lab):
    argv = ["ssh", "-F", str(lab / "ssh_config"), "-G", "n10"]
    said = subprocess.run(argv, check=True, capture_output=True, text=True).stdout
    options = dict(line.split(" ", 1) for line in said.splitlines())
    assert (options["hostname"], options["user"], options["stricthostkeychecking"]) == ("10.201.7.20", "root", "true")
    assert options["identityfile"].replace("%%", "%") == str(lab / "ssh/id_ed25519")
    assert options["userknownhostsfile"].replace("%%", "%").strip('"') == str(lab / "ssh/known_hosts")


def test_every_host_has_a_key_of_its_own_which_is_known_by_name_and_address(lab):
    known = [line.split() for line in (lab / "ssh/known_hosts").read_text().splitlines()]
    assert [names for names, _, _ in known] == ["n1,10.201.7.11", "n10,10.201.7.20"]
    assert known[0][2] != known[1][2]
    for name, (_, kind, key) in zip(("n1", "n10"), known, strict=True):
        private = lab / "hosts" / name / "upper/etc/ssh/ssh_host_ed25519_key"
        derived = subprocess.run(["ssh-keygen", "-y", "-f", str(private)], check=True, capture_output=True, text=True)
        assert derived.stdout.split()[:2] == [kind, key]


def test_the_labs_key_enters_every_host_and_no_file_is_open_to_others(lab):
    public = subprocess.run(
        ["ssh-keygen", "-y", "-f", str(lab / "ssh/id_ed25519")], check=True, capture_output=True, text=True
    ).stdout
    for name in ("n1", "n10"):
        assert (lab / "hosts" / name / "upper/root/.ssh/authorized_keys").read_text().strip() == public.strip()
        assert (lab / "hosts" / name / "upper/root/.ssh").stat().st_mode & 0o777 == 0o700
        assert (lab / "hosts" / name / "upper/etc/ssh").stat().st_mode & 0o777 == 0o755
    private = [path for path in Path(lab).rglob("*_ed25519*") if path.is_file()]
    assert len(private) == 5
    assert {path.stat().st_mode & 0o077 for path in private} == {0}


def test_keys_stay_when_the_lab_is_powered_on_again(lab):
    before = (lab / "ssh/known_hosts").read_text()
    ssh.write_config(lab, {"n1": "10.201.7.11", "n10": "10.201.7.20"})
    ssh.give_keys(lab, lab / "hosts/n1")
    assert (lab / "ssh/known_hosts").read_text() == before
