"""The command line of a component, moved from its hosted slot to its standby.

Contract: the user's changes stay; only what lets the two slots run side by side is set. Flags are
found in `--name=value` and in `--name value`, with "_" for "-" as the components themselves allow. Those
that are set are written `--name=value`: the script that activates a standby looks for that spelling when
it has to move the API server to its spare port.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from autarky.control.checkpoint.manifests.refusal import Rule, refused
from autarky.model import patience
from autarky.model.components import API_SERVER, COMPONENTS, WITH_STANDBY
from autarky.render.values import Object

_PORT = "secure-port"
_SHARING = "permit-port-sharing"
"""Only the two hosted revisions of a rollout share a port; a standby has its own, and a spare one."""
_DRAIN = {API_SERVER: ("shutdown-delay-duration", f"{patience.STANDBY_DRAIN}s")}


@dataclass(frozen=True, slots=True)
class Move:
    """From the hosted slot's port to the standby's."""

    component: str
    hosted: int
    standby: int

    def port(self, port: int) -> int:
        return self.standby if port == self.hosted else port


def move_of(component: str) -> Move | None:
    """None for a component without a fixed port: its command line is not changed."""
    if component not in WITH_STANDBY:
        return None
    one = COMPONENTS[component]
    return Move(component, one.port, one.standby_port)


def moved_command(container: Object, move: Move, where: str) -> Object:
    """The new `command` and `args` of the component's own container, nothing else."""
    command, arguments = list(container.get("command") or ()), list(container.get("args") or ())
    _refuse_hidden_flags(command, move.component, where)
    for name, value in _settings(move).items():
        command, arguments = _with_flag(command, arguments, name, value)
    parts = {"command": _moved_words(command, move), "args": _moved_words(arguments, move)}
    return {name: words for name, words in parts.items() if words}


def _settings(move: Move) -> Mapping[str, str]:
    drain = dict([_DRAIN[move.component]] if move.component in _DRAIN else [])
    return {_PORT: str(move.standby), **drain}


def _refuse_hidden_flags(command: Sequence[str], component: str, where: str) -> None:
    """A shell line, for example: its flags cannot be parsed, so the standby would collide with the hosted slot."""
    if command and all(PurePosixPath(word).name != component for word in command):
        fix = f"start {component} itself, with one flag in each element of `command` or `args`"
        raise refused(Rule.OWN_PORT, f"{where}.command", f"it starts something other than {component}", fix)


def _name(word: str) -> str | None:
    """The flag's name in its usual spelling, or None when the word is not a flag."""
    return word[2:].partition("=")[0].replace("_", "-") if word.startswith("--") else None


def _with_flag(command: list[str], arguments: list[str], name: str, value: str) -> tuple[list[str], list[str]]:
    """Replaces the flag wherever it occurs; adds it at the end where it does not."""
    mentioned = any(_name(word) == name for word in (*command, *arguments))
    command, arguments = _replaced(command, name, lambda _: value), _replaced(arguments, name, lambda _: value)
    if not mentioned:
        (arguments if arguments or not command else command).append(f"--{name}={value}")
    return command, arguments


def _replaced(words: Sequence[str], name: str, change: Callable[[str], str]) -> list[str]:
    """The words with the flag's value changed, always as one word `--name=value`."""
    result: list[str] = []
    value_is_next = False
    for word in words:
        if value_is_next:
            result.append(f"--{name}={change(word)}")
        elif _name(word) != name:
            result.append(word)
        elif "=" in word:
            result.append(f"--{name}={change(word.partition('=')[2])}")
        value_is_next = not value_is_next and _name(word) == name and "=" not in word
    return result


def _moved_words(words: list[str], move: Move) -> list[str]:
    """Without port sharing; every other port flag with the hosted port gets the standby's."""
    words = [word for word in words if _name(word) != _SHARING]
    for name in {_name(word) or "" for word in words}:
        if name.endswith("port"):
            words = _replaced(words, name, lambda value: _moved_number(value, move))
    return words


def _moved_number(text: str, move: Move) -> str:
    return str(move.standby) if text == str(move.hosted) else text
