"""`autarky bench probe`, against a server in a thread."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
import signal
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from autarky.cli.main import main
from autarky.cli.options import Duration
from autarky.probe import Kind, Rates, Stream
from fakes.web import certificates
from unit.probe.misbehaving import ALWAYS, ApiServer, new_reads

Run = Callable[..., tuple[int, str, str]]


@contextmanager
def running(tls: ssl.SSLContext) -> Iterator[ApiServer]:
    """A server that does not share the event loop of the command."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    server = ApiServer(tls)
    try:
        asyncio.run_coroutine_threadsafe(server.listen(), loop).result()
        yield server
        asyncio.run_coroutine_threadsafe(server.__aexit__(), loop).result()
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@pytest.fixture
def api(server_tls: ssl.SSLContext) -> Iterator[ApiServer]:
    with running(server_tls) as server:
        yield server


@pytest.fixture
def kubeconfig(api: ApiServer, tmp_path: Path) -> Path:
    found = certificates()
    cluster = {"server": api.url, "certificate-authority-data": base64.b64encode(found.ca).decode()}
    (tmp_path / "user.crt").write_bytes(found.client.certificate)
    (tmp_path / "user.key").write_bytes(found.client.key)
    document = {
        "kind": "Config",
        "current-context": "a",
        "contexts": [{"name": "a", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": {"client-certificate": "user.crt", "client-key": "user.key"}}],
    }
    path = tmp_path / "kubeconfig"
    path.write_text(json.dumps(document))
    return path


@pytest.fixture
def probe(kubeconfig: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs the command; gives its exit code, standard output and standard error."""
    monkeypatch.setenv("XDG_STATE_HOME", str(kubeconfig.parent / "state"))

    def run(*arguments: str) -> tuple[int, str, str]:
        try:
            code = main(["bench", "probe", "--kubeconfig", str(kubeconfig), *arguments])
        except SystemExit as end:  # as run_async ends a command that a signal has stopped
            code = int(str(end.code))
        return code, *capfd.readouterr()

    return run


def shell(text: str) -> tuple[str, ...]:
    return ("--", "sh", "-c", text)


# --- exit codes ------------------------------------------------------------------------------------------


def test_when_nothing_failed_it_ends_with_0_and_one_line_says_so(probe: Run) -> None:
    code, out, err = probe("--duration", "150ms")
    assert code == 0
    assert re.match(r"0 of \d+ requests failed \(\d s, ", out)
    assert "answered by v1.36.4 since 2026-11-21T00:00:00Z at https://127.0.0.1:" in out
    assert "probe the API" in err


def test_when_something_failed_it_ends_with_1_and_says_what(probe: Run, api: ApiServer) -> None:
    api.misbehave("status 503", times=ALWAYS, when=new_reads)
    code, out, err = probe("--duration", "150ms")
    assert code == 1
    assert "http-status" in out
    assert re.search(r"failed: \S+: http-status at \S+ by v1\.36\.4 since \S+: 503 ServiceUnavailable", err)
    assert re.search(r"and \d+ more failed", err)


def test_an_api_that_does_not_answer_is_not_probed(probe: Run) -> None:
    code, out, err = probe("--server", "https://127.0.0.1:1", "--timeout", "100ms")
    assert (code, out) == (3, "")
    assert "127.0.0.1:1: connection-refused" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--duration", "soon"), "is not a length of time such as 30s"),
        (("--duration", "0s"), "is not a length of time such as 30s"),
        (("--cluster", "one"), "--kubeconfig cannot be combined"),
        (("--", "no-such-program"), "there is no program no-such-program"),
    ],
)
def test_wrong_usage_ends_with_2(probe: Run, arguments: tuple[str, ...], message: str) -> None:
    code, out, err = probe(*arguments)
    assert (code, out) == (2, "")
    assert message in err


# --- a command -------------------------------------------------------------------------------------------


def test_it_probes_while_a_command_runs_and_keeps_the_commands_output_apart(probe: Run) -> None:
    code, out, err = probe("-o", "json", *shell("echo hello; sleep 0.2"))
    report = json.loads(out)
    assert (code, report["ok"], report["command_status"]) == (0, True, 0)
    assert report["seconds"] >= 0.2
    assert "hello" in err


def test_a_command_that_fails_gives_its_status_when_the_probe_has_nothing_to_blame(probe: Run) -> None:
    code, out, _ = probe(*shell("exit 3"))
    assert code == 3
    assert out.startswith("0 of ")
    assert out.endswith("the command exited with status 3\n")


def test_a_command_that_a_signal_ended_counts_as_in_a_shell(probe: Run) -> None:
    assert probe(*shell("kill -TERM $$"))[0] == 128 + signal.SIGTERM


def test_failures_of_the_probe_go_before_those_of_the_command(probe: Run, api: ApiServer) -> None:
    api.misbehave("status 503", times=ALWAYS, when=new_reads)
    assert probe(*shell("sleep 0.2; exit 3"))[0] == 1


def test_a_signal_stops_probe_and_command_and_what_was_seen_is_told(probe: Run, api: ApiServer, tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    code, out, err = probe(*shell(f"echo $$ > {pid}; kill -TERM $PPID; exec sleep 60"))
    assert (code, out) == (128 + signal.SIGTERM, "")
    assert re.search(r"stopped; until then: 0 of \d+ requests failed", err)
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)
    assert api.objects == {}


# --- output ----------------------------------------------------------------------------------------------


def test_reading_only_creates_nothing(probe: Run, api: ApiServer) -> None:
    code, out, _ = probe("--read-only", "--duration", "100ms", "-o", "json")
    report = json.loads(out)
    assert (code, report["writes_wanted"], report["writes_acknowledged"]) == (0, False, 0)
    assert {incoming.method for incoming in api.requests} == {"GET"}


def test_the_rate_is_that_of_all_streams_together(probe: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """How many requests come of it is no matter of this test: a busy machine has no time for all of them."""
    asked = []
    shared = Rates.shared

    def noted(total: float, *, writes: bool = True) -> Rates:
        asked.append(total)
        return shared(total, writes=writes)

    monkeypatch.setattr(Rates, "shared", noted)
    probe("--rate", "50", "--duration", "100ms")
    assert asked == [50]


def test_every_field_of_the_report_is_documented(probe: Run, api: ApiServer) -> None:
    api.misbehave("status 503", times=3, when=new_reads)
    report = json.loads(probe("--duration", "150ms", "-o", "json")[1])
    text = (Path(__file__).parents[3] / "docs" / "probe.md").read_text()
    documented = set(re.findall(r"`([a-z0-9_]+)`", text))
    assert fields(report) - documented == set()


def fields(value: Any) -> set[str]:
    """The keys of all objects inside, but for those that are data: names of streams and kinds."""
    if isinstance(value, list):
        return {key for item in value for key in fields(item)}
    if not isinstance(value, dict):
        return set()
    keys = {key for key in value if "-" not in key} - {"watch", "writes"}
    return keys | fields(list(value.values()))


def test_every_kind_of_failure_is_documented() -> None:
    text = (Path(__file__).parents[3] / "docs" / "probe.md").read_text()
    assert {f"`{word}`" for word in (*Kind, *Stream)} - set(re.findall(r"`[^`\n]+`", text)) == set()


@pytest.mark.parametrize(
    ("text", "seconds"), [("30s", 30), ("5m", 300), ("1h", 3600), ("250ms", 0.25), ("90", 90), ("1.5m", 90)]
)
def test_lengths_of_time_are_read(text: str, seconds: float) -> None:
    assert Duration().convert(text, None, None) == seconds


def test_the_command_is_imported_only_when_it_is_called() -> None:
    assert "autarky.probe.probe" not in _modules_after("import autarky.cli.bench")


def _modules_after(statement: str) -> str:
    code = f"{statement}\nimport sys\nprint(*sys.modules)"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
