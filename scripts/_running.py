"""Starting the programs of a release on loopback, and asking them: a part of release_surface.py.

Contract: everything runs in namespaces of its own (network, mounts, processes), where loopback is the only device, and
ends with the process that made them, however that ends. Nothing listens on this machine, and what kube-proxy does with
packets is done to a network that disappears.
"""

from __future__ import annotations

import json
import os
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from autarky.errors import TimedOut, UserError
from autarky.model.cluster import CertificateSettings
from autarky.model.files import CertSpec
from autarky.model.versions import Version
from autarky.payload import find_binary, load_release
from autarky.pki import PkiStore

START_LIMIT = 180.0
"""Seconds for a program to answer. 10 s are usual; this may run beside other work."""
PROBE_LIMIT = 60
"""Seconds for a program that is started to fail: 0.1 s are usual."""
INSIDE = "--inside"
NODE = "surface"
_SPECS = (
    CertSpec("apiserver", "ca", "kube-apiserver", (), ("localhost",), ("127.0.0.1",), ("server",)),
    CertSpec("super-admin", "ca", "release-surface", ("system:masters",)),
)


def say(text: str) -> None:
    sys.stderr.write(f"release_surface: {text}\n")


def in_namespaces(argv: Sequence[str]) -> int:
    """Run this script again, in namespaces of its own; its exit status."""
    if os.geteuid() != 0:
        raise UserError("the programs run in a network namespace of their own", fix="run it as root")
    unshare = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--"]
    return subprocess.run([*unshare, sys.executable, *argv, INSIDE], check=False).returncode


def programs_of(version: Version, names: Sequence[str]) -> dict[str, Path]:
    """Name → program, from the store; UserError where one is not there."""
    release = load_release(version)
    found = {name: find_binary(release, name) for name in names}
    if absent := [name for name, binary in found.items() if binary is None]:
        raise UserError(f"the store has no {', '.join(absent)} of {version}", fix=f"autarky payload get {version}")
    return {name: binary.path for name, binary in found.items() if binary is not None}


def said(argv: Sequence[str | Path]) -> str:
    """What a program writes that ends by itself, whatever its status."""
    done = subprocess.run(
        [*map(str, argv)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=PROBE_LIMIT,
        check=False,
    )
    return done.stdout.decode()


@dataclass(frozen=True)
class Servers:
    """Where programs of one release run: in a scratch directory, with certificates that are thrown away."""

    programs: Mapping[str, Path]
    directory: Path
    pki: Path

    @classmethod
    def prepared(cls, programs: Mapping[str, Path], directory: Path) -> Servers:
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
        pki = directory / "pki"
        PkiStore(pki).ensure(_SPECS, CertificateSettings(), datetime.now(UTC))
        return cls(programs, directory, pki)

    @property
    def kubeconfig(self) -> Path:
        """Of an administrator, for the API server."""
        path = self.directory / "kubeconfig"
        cluster = {"server": "https://127.0.0.1:6443", "certificate-authority": str(self.pki / "ca.crt")}
        user = {
            "client-certificate": str(self.pki / "super-admin.crt"),
            "client-key": str(self.pki / "super-admin.key"),
        }
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "one", "cluster": cluster}],
            "users": [{"name": "one", "user": user}],
            "contexts": [{"name": "one", "context": {"cluster": "one", "user": "one"}}],
            "current-context": "one",
        }
        path.write_text(json.dumps(content))
        return path

    # --- running ---

    def command(self, program: str, arguments: Mapping[str, object]) -> list[str]:
        return [str(self.programs[program]), *(f"--{name}={value}" for name, value in arguments.items())]

    @contextmanager
    def etcd(self) -> Iterator[None]:
        client, peer = "http://127.0.0.1:2379", "http://127.0.0.1:2380"
        arguments = {
            "data-dir": self.directory / "etcd",
            "listen-client-urls": client,
            "advertise-client-urls": client,
            "listen-peer-urls": peer,
            "initial-advertise-peer-urls": peer,
            "initial-cluster": f"default={peer}",
            "unsafe-no-fsync": "true",
            "log-level": "warn",
        }
        with self._running("etcd", arguments, f"{client}/health"):
            yield

    def api_server_arguments(self) -> dict[str, object]:
        return {
            "secure-port": 6443,
            "bind-address": "127.0.0.1",
            "advertise-address": "127.0.0.1",
            "endpoint-reconciler-type": "none",
            "etcd-servers": "http://127.0.0.1:2379",
            "client-ca-file": self.pki / "ca.crt",
            **self._serving,
            "service-account-issuer": "https://kubernetes.default.svc",
            "service-account-key-file": self.pki / "sa.pub",
            "service-account-signing-key-file": self.pki / "sa.key",
            "service-cluster-ip-range": "10.96.0.0/24",
            "authorization-mode": "RBAC",
        }

    @contextmanager
    def api_server(self, **further: str) -> Iterator[None]:
        """further: arguments, with _ for -."""
        arguments = self.api_server_arguments() | {name.replace("_", "-"): value for name, value in further.items()}
        with self._running("kube-apiserver", arguments, "https://127.0.0.1:6443/readyz"):
            yield

    @contextmanager
    def of_level_3(self, component: str) -> Iterator[str]:
        """Scheduler, controller-manager or kube-proxy, while an API server runs; where it answers."""
        if component == "kube-proxy":
            self._ensure_node()
            arguments, url = self._proxy_arguments(), "http://127.0.0.1:10249"
        else:
            arguments, url = self._leader_arguments(), "https://127.0.0.1:10257"
        # Not /healthz, which is for everybody: the others know their administrator a little later.
        with self._running(component, arguments, f"{url}/metrics"):
            yield url

    @property
    def _serving(self) -> dict[str, object]:
        return {"tls-cert-file": self.pki / "apiserver.crt", "tls-private-key-file": self.pki / "apiserver.key"}

    def _leader_arguments(self) -> dict[str, object]:
        names = ("kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig")
        return {
            **dict.fromkeys(names, self.kubeconfig),
            **self._serving,
            "bind-address": "127.0.0.1",
            "secure-port": 10257,
            "leader-elect": "false",
        }

    def _proxy_arguments(self) -> dict[str, object]:
        """Nothing that belongs to all of the machine is set: the limits of connection tracking."""
        return {
            "kubeconfig": self.kubeconfig,
            "hostname-override": NODE,
            "proxy-mode": "nftables",
            "metrics-bind-address": "127.0.0.1:10249",
            "conntrack-max-per-core": 0,
            "conntrack-min": 0,
            **dict.fromkeys(("conntrack-tcp-timeout-established", "conntrack-tcp-timeout-close-wait"), "0s"),
        }

    def _ensure_node(self) -> None:
        """kube-proxy waits for its Node and for that one's address."""
        nodes = "https://127.0.0.1:6443/api/v1/nodes"
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}}
        if not any(one["metadata"]["name"] == NODE for one in self.json(nodes)["items"]):
            self.ask(nodes, json.dumps(node).encode())
            status = {"status": {"addresses": [{"type": "InternalIP", "address": "127.0.0.1"}]}}
            self.ask(f"{nodes}/{NODE}/status", json.dumps(status).encode(), method="PATCH")

    @contextmanager
    def _running(self, program: str, arguments: Mapping[str, object], health: str) -> Iterator[None]:
        """The program, from when it is healthy to the end of the block."""
        log = self.directory / f"{program}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                self.command(program, arguments), stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )
        try:
            end = time.monotonic() + START_LIMIT
            while (why := self._unhealthy(health)) is not None:
                if process.poll() is not None or time.monotonic() > end:
                    raise TimedOut(f"{program} does not answer: {why}; its log ends:\n{log.read_text()[-2000:]}")
                time.sleep(0.2)
            yield
        finally:
            process.kill()
            process.wait()

    # --- asking ---

    def _unhealthy(self, url: str) -> str | None:
        try:
            self.ask(url)
        except (OSError, TimedOut) as error:
            return str(error)
        return None

    def json(self, url: str) -> Any:
        return json.loads(self.ask(url))

    def ask(self, url: str, body: bytes | None = None, *, method: str | None = None, accept: str = "*/*") -> str:
        """With the administrator's certificate. OSError where there is no answer, or one of failure."""
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        request = urllib.request.Request(  # noqa: S310 # of this module alone
            url, data=body, method=method, headers={"Content-Type": kind, "Accept": accept}
        )
        with urllib.request.urlopen(request, timeout=20, context=self._tls()) as answer:  # noqa: S310
            text: bytes = answer.read()
        return text.decode()

    def _tls(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.pki / "ca.crt"))
        context.load_cert_chain(self.pki / "super-admin.crt", self.pki / "super-admin.key")
        return context
