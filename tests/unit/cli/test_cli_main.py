from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest

from autarky import __version__, errors
from autarky.cli import up as cli_up
from autarky.cli.main import COMMANDS, EXIT_CODES, cli, main
from autarky.control.hosts.decide.preflight import CHECKS
from autarky.errors import AutarkyError, Conflict, Problems, Refused, TimedOut, Unreachable, UserError

ROOT = Path(__file__).parents[3]
HEAVY = {"rich", "pydantic", "httpx2", "cryptography", "yaml", "asyncio", "logging", "subprocess"}


def python(program: str, **options) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=False, **options
    )


# --- help ----------------------------------------------------------------------------------------------


def test_help_imports_nothing_heavy_and_none_of_the_commands():
    ended = python(
        "import sys\nfrom autarky.cli.main import main\nassert main(['--help']) == 0\nprint('IMPORTED', *sys.modules)"
    )
    assert ended.returncode == 0, ended.stderr
    imported = set(ended.stdout.partition("IMPORTED")[2].split())
    assert not HEAVY & imported
    assert {name for name in imported if name.startswith("autarky.")} == {
        "autarky.cli",
        "autarky.cli.lazy",
        "autarky.cli.main",
        "autarky.errors",
    }


def test_help_shows_every_command_under_its_heading(capsys):
    assert main(["--help"]) == 0
    text = capsys.readouterr().out
    for heading, section in COMMANDS.items():
        assert f"\n{heading}:\n" in text
        for name, command in section.items():
            assert re.search(rf"^  {name} +{re.escape(command.help[:40])}", text, re.MULTILINE)


def test_help_works_when_the_module_of_a_command_cannot_be_imported(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "autarky.cli.up", None)
    assert main(["--help"]) == 0
    assert main([]) == 2
    assert "Bring a cluster up" in capsys.readouterr().out


@pytest.mark.parametrize("name", list(cli.lazy))
def test_every_command_of_the_table_exists_and_has_help(name, capsys):
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    assert command.help
    assert "--help" in command.get_help(click.Context(command, info_name=name)) or not command.add_help_option


def test_an_unknown_command_is_answered_with_near_names(capsys):
    assert main(["kubconfig"]) == 2
    assert "Did you mean 'kubeconfig'?" in capsys.readouterr().err


def test_an_unknown_option_is_wrong_usage(capsys):
    assert main(["--verbos", "version"]) == 2
    assert "--verbose" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["version"], ["--version"]])
def test_the_version_is_printed(arguments, capsys):
    assert main(arguments) == 0
    assert capsys.readouterr().out == f"autarky {__version__}\n"


# --- errors --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "error",
    [
        UserError("no such file", fix="make it"),
        Problems("two problems", [UserError("one"), UserError("two")]),
        Unreachable("n1 is silent"),
        TimedOut("timed out after 3 s: the API answers; last seen: refused"),
        Conflict("somebody was faster"),
        Refused("learner first", "no learner", "autarky etcd add"),
        AutarkyError("something"),
    ],
)
def test_an_error_of_ours_is_its_text_and_its_exit_code(autarky, capsys, error):
    def command():
        raise error

    assert autarky(command) == error.exit_code
    captured = capsys.readouterr()
    assert captured.err == f"autarky: {error}\n"
    assert captured.out == ""


def test_an_error_that_was_shown_already_is_not_printed_again(autarky, capsys):
    def command():
        error = Unreachable("n1 is silent")
        error.reported = True
        raise error

    assert autarky(command) == 3
    assert capsys.readouterr().err == ""


def test_verbose_shows_where_an_error_comes_from(autarky, capsys):
    def command():
        try:
            raise ConnectionRefusedError(111, "refused")
        except OSError as error:
            raise Unreachable("n1 is silent") from error

    assert autarky(command, "-v") == 3
    assert "ConnectionRefusedError" in capsys.readouterr().err


def test_anything_else_is_a_bug_and_shows_its_traceback(autarky, capsys):
    assert autarky(lambda: dict[str, str]()["etcd"]) == 70
    text = capsys.readouterr().err
    assert "Traceback" in text
    assert "KeyError: 'etcd'" in text
    assert "this is a bug in autarky" in text


def test_a_broken_pipe_that_is_not_standard_output_is_a_bug(autarky, capsys):
    def command():
        raise BrokenPipeError(32, "a socket")

    assert autarky(command) == 70
    assert "BrokenPipeError" in capsys.readouterr().err


@pytest.mark.parametrize("error", [KeyboardInterrupt(), click.Abort()])
def test_an_interrupt_outside_of_an_operation_ends_with_130(autarky, capsys, error):
    def command():
        raise error

    assert autarky(command) == 130
    assert capsys.readouterr().err == "interrupted\n"


def test_a_command_may_choose_its_own_exit_code(autarky):
    assert autarky(lambda: click.get_current_context().exit(7)) == 7
    with pytest.raises(SystemExit) as caught:
        autarky(lambda: sys.exit(8))
    assert caught.value.code == 8


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_results_that_nobody_reads_end_quietly_with_141(unbuffered):
    read, write = os.pipe()
    os.close(read)
    with subprocess.Popen(
        [sys.executable, "-m", "autarky", "version"],
        stdout=write,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
    ) as command:
        os.close(write)
        assert command.communicate(timeout=30)[1] == ""
    assert command.returncode == 141


def test_closed_standard_streams_are_no_obstacle():
    ended = subprocess.run(
        ["sh", "-c", 'exec "$0" -m autarky version >&- 2>&-', sys.executable], timeout=30, check=False
    )
    assert ended.returncode == 0


def test_the_exit_codes_in_the_help_in_the_document_and_in_the_errors_agree():
    in_errors = {
        error.exit_code
        for error in vars(errors).values()
        if isinstance(error, type) and issubclass(error, AutarkyError)
    }
    in_help = {
        int(code)
        for line in EXIT_CODES.splitlines()
        for code in re.findall(r"^ +([\d, ]+) ", line)[:1]
        for code in code.split(", ")
    }
    document = (ROOT / "docs" / "exit-codes.md").read_text()
    in_document = {int(code) for code in re.findall(r"^\| (\d+) \|", document, re.MULTILINE)}
    assert in_help == in_document == in_errors | {0, 70, 129, 130, 141, 143}


# --- completion ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_completion_script_names_the_program_and_its_variable(shell, capsys):
    assert main(["completion", shell]) == 0
    assert "_AUTARKY_COMPLETE" in capsys.readouterr().out


def completions(monkeypatch, capsys, words: str) -> list[str]:
    monkeypatch.setenv("_AUTARKY_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(len(words.split()) - (not words.endswith(" "))))
    assert main() == 0
    return [line.partition(",")[2] for line in capsys.readouterr().out.splitlines()]


def test_commands_are_completed_without_importing_them(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "autarky.cli.kube", None)
    assert completions(monkeypatch, capsys, "autarky kube") == ["kubeconfig", "kubectl"]


def test_options_are_completed(monkeypatch, capsys):
    assert completions(monkeypatch, capsys, "autarky --verb") == ["--verbose"]


def test_a_start_with_help_is_quick():
    """Processor time, not wall time: tests share the machine. The promise is 150 ms; half of it is measured."""
    program = (
        "import resource, sys\nfrom autarky.cli.main import main\nmain(['--help'])\n"
        "used = resource.getrusage(resource.RUSAGE_SELF)\n"
        "print(used.ru_utime + used.ru_stime, file=sys.stderr)"
    )
    assert min(float(python(program).stderr) for _ in range(3)) < 0.15


def cluster_file(directory: Path) -> Path:
    file = directory / "cluster.yaml"
    head = "apiVersion: autarky.dev/v1alpha1\nkind: Cluster\nmetadata: {name: demo}\n"
    file.write_text(f"{head}spec: {{nodes: [{{name: n1, host: lab}}]}}\n")
    return file


def test_a_phase_to_skip_that_does_not_exist_is_named(tmp_path, monkeypatch, capsys):
    """Before anything is shown, so by the command itself."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    file = cluster_file(tmp_path)
    assert main(["plan", "-f", str(file), "--skip", "pviot"]) == 2
    assert "plan has no phase pviot" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["up", "plan"])
def test_a_check_to_ignore_that_does_not_exist_is_answered_with_all_that_there_are(
    command, tmp_path, monkeypatch, capsys
):
    """Before a host is made or asked, of which there may be none yet."""
    monkeypatch.setattr(cli_up, "bring_up", lambda *_, **__: pytest.fail("it begins"))
    assert main([command, "-f", str(cluster_file(tmp_path)), "--ignore", "disk", "--ignore", "prots"]) == 2
    heard = capsys.readouterr().err
    assert "there is no check prots" in heard
    assert f"did you mean ports? The checks are: {', '.join(CHECKS)}" in heard


@pytest.mark.parametrize("command", ["up", "plan"])
def test_the_checks_that_can_be_ignored_are_in_the_help_and_completed(command, monkeypatch, capsys):
    assert main([command, "--help"]) == 0
    help_ = " ".join(capsys.readouterr().out.split())
    said = f"Only warn if this preflight check fails (repeatable; see docs/cluster-file.md): {', '.join(CHECKS)}."
    assert f"--ignore CHECK {said}" in help_
    assert completions(monkeypatch, capsys, f"autarky {command} --ignore pr") == ["programs"]
