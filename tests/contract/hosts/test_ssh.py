"""What only a host reached by ssh can meet: keys, users, jump hosts, and connections that break."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from autarky.errors import Held, Unreachable, UserError
from autarky.hosts import held, openssh
from autarky.hosts.openssh import ConnectionLost
from autarky.model.files import File
from contract.hosts.conftest import USER
from contract.hosts.test_hosts import until_there


@pytest.fixture
def config(machine, tmp_path):
    """Makes an ssh_config: the given lines go ahead of the lab's, and what is given first holds."""

    def make(*lines: str) -> Path:
        path = tmp_path / "ssh_config"
        path.write_text("\n".join(lines) + "\n" + machine.lab.ssh_config.read_text())
        return path

    return make


@pytest.fixture
def sockets(tmp_path):
    return tmp_path / "s"


# --- who it is, and who may enter ------------------------------------------------------------------


async def test_an_unknown_host_key_is_refused_with_what_to_do(machine, config, sockets):
    host = machine.reached("ssh://n1", sockets, config=config("UserKnownHostsFile /dev/null"))
    with pytest.raises(UserError, match=r"n1 \(ssh://n1\): its host key is not known here") as caught:
        await host.run(["true"])
    assert "ssh n1" in caught.value.fix
    assert "ssh-keyscan" in caught.value.fix


async def new_key(path: Path) -> None:
    argv = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)]
    assert await (await asyncio.create_subprocess_exec(*argv)).wait() == 0


async def test_a_changed_host_key_is_refused_with_a_warning(machine, config, sockets, tmp_path):
    other = tmp_path / "other"
    await new_key(other)
    kind, key, *_ = other.with_suffix(".pub").read_text().split()
    (tmp_path / "known").write_text(f"{machine.lab.records()['n1'].address} {kind} {key}\n")
    host = machine.reached("ssh://n1", sockets, config=config(f"UserKnownHostsFile {tmp_path}/known"))
    with pytest.raises(UserError, match="its host key is not the known one") as caught:
        await host.run(["true"])
    assert "man-in-the-middle" in caught.value.fix


async def test_a_machine_that_knows_none_of_our_keys_asks_for_no_password(machine, config, sockets, tmp_path):
    await new_key(tmp_path / "mine")
    without = machine.lab.ssh_config.read_text().replace(str(machine.lab.directory / "ssh/id_ed25519"), "/dev/null")
    path = tmp_path / "ssh_config"
    path.write_text(f"IdentityFile {tmp_path}/mine\n{without}")
    with pytest.raises(UserError, match="it accepts none of the keys that ssh has") as caught:
        await machine.reached("ssh://n1", sockets, config=path).run(["true"])
    assert "ssh-copy-id n1" in caught.value.fix


async def test_a_name_that_leads_nowhere_and_a_bad_configuration_are_the_users_to_fix(machine, config, sockets):
    with pytest.raises(UserError, match=r"n1 \(ssh://nowhere\.invalid\): .*resolve hostname"):
        await machine.reached("ssh://nowhere.invalid", sockets).run(["true"])
    with pytest.raises(UserError, match=r"ssh rejects its configuration: .*[Nn]onsense"):
        await machine.reached("ssh://n1", sockets, config=config("Nonsense yes")).run(["true"])


async def test_a_machine_where_nothing_listens_is_unreachable_and_nothing_more(machine, sockets):
    with pytest.raises(Unreachable, match=r"n1 \(ssh://n1:1\): .*refused"):
        await machine.reached("ssh://n1:1", sockets).run(["true"])


async def test_without_the_program_ssh_its_package_is_named(machine, sockets, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match=r"the program ssh is not installed\n *fix: .*openssh-client"):
        await machine.reached("ssh://n1", sockets).run(["true"])


async def test_a_user_who_may_not_become_root_without_a_password_is_told_how(machine, sockets):
    await add_user(machine, "guest", "/bin/sh")
    await machine.entered.write_files([File("/etc/sudoers.d/guest", b"guest ALL=(ALL) ALL\n", 0o440)])
    with pytest.raises(UserError, match=r"cannot become root: sudo: a password is required") as caught:
        await machine.reached("ssh://guest@n1", sockets).run(["true"])
    assert "NOPASSWD" in caught.value.fix
    await machine.entered.remove(["/etc/sudoers.d/guest"])
    with pytest.raises(UserError, match="cannot become root"):
        async with machine.reached("ssh://guest@n1", sockets).hold("/run/test.lock", "guest"):
            pass


async def test_a_user_without_a_shell_is_told_so(machine, sockets):
    await add_user(machine, "mute", "/usr/sbin/nologin")
    with pytest.raises(UserError, match="its login shell does not run commands"):
        await machine.reached("ssh://mute@n1", sockets).run(["true"])


async def add_user(machine, name: str, shell: str) -> None:
    """One who enters by the lab's key, and is nobody."""
    script = 'useradd --create-home --shell "$2" "$1" && cp -r /root/.ssh "/home/$1/" && chown -R "$1:" "/home/$1/.ssh"'
    await machine.entered.run(["sh", "-c", script, "sh", name, shell])


async def test_what_login_scripts_print_is_not_taken_for_output(machine, sockets):
    await machine.entered.write_files([File(f"/home/{USER}/.bashrc", b"echo hello; echo grumble >&2\n")])
    try:
        said = await machine.reached(f"ssh://{USER}@n1", sockets).run(["echo", "answer"])
        assert said.stdout == b"answer\n"
    finally:
        await machine.entered.remove([f"/home/{USER}/.bashrc"])


# --- the way there ---------------------------------------------------------------------------------


async def test_the_users_ssh_config_decides_where_an_alias_leads_and_through_which_host(machine, config, sockets):
    address = machine.lab.records()["n1"].address
    path = config("Host far", f"  HostName {address}", "  ProxyJump n1", "  HostKeyAlias n1")
    path.write_text(path.read_text().replace("ProxyJump n1", f"ProxyCommand ssh -F {path} -W %h:%p n1"))
    said = await machine.reached("ssh://far", sockets, config=path).run(["sh", "-c", "echo ok"])
    assert said.text == "ok"
    jump = config("Host far", f"  HostName {address}", "  ProxyJump n1", "  HostKeyAlias n1")
    assert (await machine.reached("ssh://far", sockets.with_name("t"), config=jump).run(["echo", "ok"])).text == "ok"


async def test_an_unknown_key_of_a_jump_host_is_told_as_such(machine, config, sockets):
    address = machine.lab.records()["n1"].address
    path = config(
        "Host gate", f"  HostName {address}", "  UserKnownHostsFile /dev/null",
        "Host far", f"  HostName {address}", "  ProxyJump gate",
    )  # fmt: skip
    with pytest.raises(UserError, match="its host key is not known here"):
        await machine.reached("ssh://far", sockets, config=path).run(["true"])


async def test_a_state_directory_with_a_long_path_is_no_obstacle(machine, tmp_path, monkeypatch):
    with tempfile.TemporaryDirectory() as runtime:
        monkeypatch.setenv("XDG_RUNTIME_DIR", runtime)
        deep = tmp_path / ("d" * 100) / "s"
        host = machine.reached("ssh://n1", deep)
        assert (await host.run(["echo", "ok"])).text == "ok"
        assert not deep.exists()
        assert (Path(runtime) / "autarky").stat().st_mode & 0o777 == 0o700
        await host._master.disconnect()


async def test_a_directory_that_others_could_write_holds_no_connection(machine, tmp_path):
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    with pytest.raises(UserError, match="could be written by other users"):
        await machine.reached("ssh://n1", tmp_path / "open").run(["true"])


async def test_neither_arguments_nor_content_are_seen_by_who_lists_processes(machine, sockets):
    host = machine.reached("ssh://n1", sockets)
    running = asyncio.create_task(host.run(["sh", "-c", "cat >/dev/null; sleep 1", "sh", "seen-here"], stdin=b"secret"))
    listings = []
    while not running.done():
        listings.append(b"".join(_command_line(path) for path in Path("/proc").glob("[0-9]*/cmdline")))
        await asyncio.sleep(0.1)
    await running
    on_this_machine = [line for listing in listings for line in listing.split(b"\n") if b"ssh\0" in line[:8]]
    assert on_this_machine
    assert not [line for line in on_this_machine if b"seen-here" in line or b"secret" in line]


def _command_line(path: Path) -> bytes:
    try:
        return path.read_bytes() + b"\n"
    except OSError:
        return b""


# --- connections that break ------------------------------------------------------------------------


async def test_a_connection_cut_in_the_middle_leaves_the_result_unknown_and_the_next_call_connects_again(
    machine, sockets
):
    host = machine.reached("ssh://n1", sockets)
    running = asyncio.create_task(host.run(["sh", "-c", "echo >/run/began; sleep 3; echo >/run/went-on"]))
    await until_there(machine.entered, "/run/began")
    await machine.entered.run(["pkill", "-KILL", "-f", "sshd: root@notty"])
    with pytest.raises(ConnectionLost, match=r"the connection was lost while it ran: .*unknown"):
        await running
    assert (await host.run(["echo", "back"])).text == "back"
    await machine.entered.remove(["/run/began", "/run/went-on"])


async def test_what_may_be_done_twice_is_done_again_after_a_cut(machine, sockets, tmp_path):
    host = machine.reached("ssh://n1", sockets)
    await host.run(["true"])
    source = tmp_path / "big"
    source.write_bytes(os.urandom(1 << 20) * 150)
    pushing = asyncio.create_task(host.push(source, "/var/lib/autarky/big", mode=0o600))
    await until_there(machine.entered, "/var/lib/autarky/.autarky.big")
    await machine.entered.run(["pkill", "-KILL", "-f", "sshd: root@notty"])
    await pushing
    there = await host.digests(["/var/lib/autarky/big", "/var/lib/autarky/.autarky.big"])
    assert list(there) == ["/var/lib/autarky/big"]
    await host.push(source, "/var/lib/autarky/big", mode=0o600)
    assert await host.digests(["/var/lib/autarky/big"]) == there
    await host.remove(["/var/lib/autarky/big"])


async def test_a_network_that_is_away_for_seconds_is_borne(machine, sockets):
    host = machine.reached("ssh://n1", sockets)
    await host.run(["true"])
    machine.cable("down")
    try:
        running = asyncio.create_task(host.run(["echo", "late"]))
        await asyncio.sleep(3)
    finally:
        machine.cable("up")
    assert (await running).text == "late"


async def test_a_network_that_stays_away_ends_the_call_well_before_its_time(machine, sockets, monkeypatch):
    monkeypatch.setitem(openssh._OPTIONS, "ServerAliveInterval", "1")
    host = machine.reached("ssh://n1", sockets)
    await host.run(["true"])
    machine.cable("down")
    try:
        async with asyncio.timeout(60):
            with pytest.raises(ConnectionLost, match="unknown"):
                await host.run(["sleep", "300"], timeout=300)
    finally:
        machine.cable("up")
    assert (await host.run(["echo", "back"])).text == "back"


async def test_a_host_gives_up_the_lock_of_an_operator_it_hears_nothing_of(machine, sockets, monkeypatch):
    monkeypatch.setattr(held, "SILENCE", 3)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(machine.reached("ssh://n1", sockets).hold("/run/test.lock", "silent"))
        machine.cable("down")
        try:
            async with asyncio.timeout(30):
                await _until_free(machine.entered)
        finally:
            machine.cable("up")


async def _until_free(host) -> None:
    while True:
        try:
            async with host.hold("/run/test.lock", "next"):
                return
        except Held:
            await asyncio.sleep(0.2)


async def test_a_connection_is_shared_and_ends_by_itself(machine, sockets):
    first, second = (machine.reached("ssh://n1", sockets) for _ in range(2))
    await asyncio.gather(*(host.run(["true"]) for host in (first, second)))
    assert len(list(sockets.glob("*.lock"))) == 1
    said = await first.run(["sh", "-c", "pgrep -fc 'sshd: root@notty' || true"])
    assert int(said.text) >= 1
    await first._master.disconnect()
    assert (await second.run(["echo", "ok"])).text == "ok"


def test_the_tests_have_a_client():
    assert shutil.which("ssh"), "apt-get install openssh-client"
