"""The system's OpenSSH: one connection per host (a control master), over which sessions run.

Contract: the user's ssh_config decides who, where and how: aliases, ports, jump hosts, identities, known
hosts, host key checks, compression. Only what an unattended program needs is set here: no prompts, a silent
connection ends, nothing is forwarded.

The master is a process of its own that outlives the command by a minute, so that the next one finds it;
a killed command leaves nothing else. One process at a time makes it (others wait and use it).

Dangers: the path of a unix socket is bounded (`LONGEST_SOCKET`), and ssh makes its socket under a longer
temporary name. A master whose machine lost the network looks alive until `SILENCE` has passed.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

from autarky.errors import AutarkyError, Inaccessible, Unreachable, UserError
from autarky.hosts.process import Said, converse
from autarky.store import waiting_lock

CONNECT_SECONDS = 15
ALIVE_INTERVAL = 5
ALIVE_COUNT = 3
SILENCE = ALIVE_INTERVAL * ALIVE_COUNT
"""Seconds after which a connection that says nothing is given up."""
PERSIST_SECONDS = 60
"""How long a connection that nobody uses is kept for the next command."""
LONGEST_SOCKET = 104 - len(".0123456789abcdef") - 1
"""Bytes of a control socket's path: the smallest sun_path there is, less ssh's temporary suffix and the end."""
_NAME_LENGTH = 12
_OPTIONS = {
    "BatchMode": "yes",
    "ConnectTimeout": str(CONNECT_SECONDS),
    "ServerAliveInterval": str(ALIVE_INTERVAL),
    "ServerAliveCountMax": str(ALIVE_COUNT),
    "ClearAllForwardings": "yes",
    "ForwardAgent": "no",
    "ForwardX11": "no",
    "PermitLocalCommand": "no",
    "RemoteCommand": "none",
    "RequestTTY": "no",
    "LogLevel": "ERROR",
}


class ConnectionLost(Unreachable):
    """There was a connection, and it broke: the request may have been carried out or not."""


class Master:
    """The connection to one host. `url` is ssh://[user@]host[:port]; `config` replaces the user's ssh_config."""

    def __init__(self, name: str, url: str, directory: Path, config: str | None) -> None:
        self._name = name
        self._url = url
        self._common = ["ssh", *(("-F", config) if config is not None else ())]
        for option, value in _OPTIONS.items():
            self._common += ["-o", f"{option}={value}"]
        digest = hashlib.sha256(f"{config}\n{url}".encode()).hexdigest()[:_NAME_LENGTH]
        self._socket = socket_directory(directory) / digest
        self._making = asyncio.Lock()
        self._seen_alive = False

    def session(self, command: str) -> list[str]:
        """The local command line that runs a shell command over the connection."""
        return [*self._common, "-S", str(self._socket), "-o", "ControlMaster=no", "-T", "--", self._url, command]

    async def ensure(self) -> None:
        """Connect where there is no connection. Raises Unreachable, or Inaccessible for what the user must fix."""
        async with self._making:
            if self._seen_alive and self._socket.exists():
                return
            _make_private(self._socket.parent)
            async with waiting_lock(self._socket.with_suffix(".lock")):
                if not await self._answers():
                    await self._connect()
            self._seen_alive = True

    def doubt(self) -> None:
        """Something went wrong on it: check whether it is alive before it is used again."""
        self._seen_alive = False

    async def disconnect(self) -> None:
        """End the connection and every session on it."""
        await self._control("exit")
        self._seen_alive = False

    # --- steps ---

    async def _answers(self) -> bool:
        return self._socket.exists() and await self._control("check")

    async def _control(self, what: str) -> bool:
        argv = [*self._common, "-S", str(self._socket), "-O", what, "--", self._url]
        status, _ = await self._ssh(argv)
        return status == 0

    async def _connect(self) -> None:
        """`-f`: it returns when the connection stands and its socket is there, or says why not."""
        persist = ("-o", f"ControlPersist={PERSIST_SECONDS}")
        status, said = await self._ssh(
            [*self._common, "-M", "-S", str(self._socket), *persist, "-f", "-N", "-T", "--", self._url]
        )
        if status == 0:
            return
        if _died_on_the_way(said):
            # With a persistent master, ssh hides what a jump host's ssh says. Without one it does not.
            status, said = await self._ssh(self._plain("true"))
        raise explain(self._name, self._url, said)

    def _plain(self, command: str) -> list[str]:
        return [*self._common, "-o", "ControlPath=none", "-T", "--", self._url, command]

    async def _ssh(self, argv: Sequence[str]) -> tuple[int, str]:
        said = Said()
        try:
            status = await converse(argv, None, said, timeout=2 * CONNECT_SECONDS, limit=1 << 16)
        except TimeoutError:
            return 255, f"no connection within {2 * CONNECT_SECONDS} s"
        except FileNotFoundError as error:
            fix = "install OpenSSH's client: apt-get install openssh-client"
            raise UserError("the program ssh is not installed", fix=fix) from error
        return status, said.stderr.decode(errors="replace")


def explain(name: str, url: str, said: str) -> AutarkyError:
    """Why ssh did not connect, as the error to raise; `said` is its standard error. The host's words may be among it,
    so that none of this is known to be a mistake here."""
    destination = url.removeprefix("ssh://")
    what = f"{name} ({url})"
    words = _last_words(said)
    if "IDENTIFICATION HAS CHANGED" in said or "differs from the key for the IP address" in said:
        return Inaccessible(
            f"{what}: its host key is not the known one: {words}",
            fix="if the machine was reinstalled, remove the old key (ssh-keygen -R HOST) and connect once by hand; "
            "if not, this may be a man-in-the-middle attack: stop",
        )
    if "Host key verification failed" in said or "host key is known for" in said:
        return Inaccessible(
            f"{what}: its host key is not known here: {words}",
            fix=f"connect once by hand and compare the fingerprint: ssh {_for_hand(url)}; "
            "or add the key that ssh-keyscan shows to ~/.ssh/known_hosts when you have verified it",
        )
    if "Permission denied" in said or "Too many authentication failures" in said:
        return Inaccessible(
            f"{what}: it accepts none of the keys that ssh has: {words}",
            fix=f"give it your key (ssh-copy-id {_for_hand(url)}), or name the key in ssh_config or load it (ssh-add); "
            "autarky does not ask for passwords",
        )
    if "Could not resolve hostname" in said and "Temporary failure" not in said:
        return Inaccessible(
            f"{what}: {words}", fix=f"correct the name {destination} in the file, or add it to ssh_config"
        )
    if any(sign in said for sign in ("onfiguration option", "open user config file", "Bad owner or permissions")):
        return Inaccessible(f"{what}: ssh rejects its configuration: {words}", fix="correct ssh_config")
    return Unreachable(f"{what}: {words or 'ssh said nothing'}")


def _for_hand(url: str) -> str:
    """As one would type it: user and host, or the complete URL if it has a port."""
    destination = url.removeprefix("ssh://")
    return url if ":" in destination else destination


def _last_words(said: str) -> str:
    """What ssh said, on one line, without the banner of at signs."""
    lines = [line.strip() for line in said.splitlines() if line.strip().strip("@ ")]
    return "; ".join(line.strip("@ ") for line in lines)[-600:]


def _died_on_the_way(said: str) -> bool:
    """Whether the proxy program (ProxyJump, ProxyCommand) exited; no more can be seen of it."""
    return "UNKNOWN port 65535" in said or "kex_exchange_identification" in said


# --- the control socket -----------------------------------------------------------------------------


def socket_directory(wanted: Path) -> Path:
    """`wanted`, or a private directory with a short path where sockets in that one could not be named."""
    short = hashlib.sha256(os.fsencode(wanted)).hexdigest()[:12]
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    private = [Path(runtime) / "autarky"] if runtime.startswith("/") else []
    last = Path("/tmp") / f"autarky-{os.getuid()}" / short  # noqa: S108 # `_make_private` looks whose it is
    candidates = [wanted, *(base / short for base in private), last]
    return next((path for path in candidates if len(os.fsencode(path)) + 1 + _NAME_LENGTH <= LONGEST_SOCKET), last)


def _make_private(directory: Path) -> None:
    """Whoever could put a socket there would receive what we send: it must be ours, and writable by nobody else."""
    for part in (directory.parent, directory):
        part.mkdir(mode=0o700, parents=True, exist_ok=True)
        seen = part.stat()
        if seen.st_uid != os.getuid() or seen.st_mode & 0o022:
            raise UserError(
                f"{part} could be written by other users: not safe for connections",
                fix=f"remove {part}, or set XDG_STATE_HOME or XDG_RUNTIME_DIR to a directory of your own",
            )
