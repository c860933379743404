"""The one tree of errors that autarky raises on purpose.

    AutarkyError
    ├── UserError        the input or the environment is wrong; says what, where and how to fix it
    │   ├── Problems     several UserErrors found in one pass, reported together
    │   └── Inaccessible ssh does not let us into a host, or the host not into its shell or to root
    ├── Unreachable      a host, an API server, etcd or containerd did not answer; the state is unknown
    ├── TimedOut         a named wait passed its deadline; carries the last thing seen
    ├── Conflict         somebody else changed the same thing, or holds the lock
    │   └── Held         the lock on a host, with what its holder wrote there
    ├── CommandFailed    a program on a host ended with a non-zero status
    ├── ApiError         the Kubernetes, etcd or CRI API answered with an error status
    └── Refused          a safety rule forbids the step; names the rule

Contract: adapters translate library errors at the edge (`raise ... from error`), the
CLI prints `str(error)` without a traceback for every AutarkyError and exits with its
`exit_code`. Anything else that escapes is a bug and prints a traceback (exit code 70).
"""

from __future__ import annotations

from collections.abc import Sequence


class AutarkyError(Exception):
    """Base class: catch it to catch everything autarky raises on purpose."""

    exit_code = 1
    reported = False
    """Set when the user has already seen the text, at the end of a live display: it is not printed again."""


class UserError(AutarkyError):
    """The input or the environment is wrong. `fix` is the remedy, one imperative sentence."""

    exit_code = 2

    def __init__(self, what: str, *, fix: str = "", where: str = "") -> None:
        self.what = what
        self.fix = fix
        self.where = where
        text = f"{where}: {what}" if where else what
        super().__init__(f"{text}\n  fix: {fix}" if fix else text)


class Problems(UserError):
    """Everything found wrong in one pass, so that the user can fix all of it at once."""

    def __init__(self, summary: str, problems: Sequence[UserError]) -> None:
        self.problems = tuple(problems)
        lines = [f"{summary} ({len(self.problems)})"]
        lines += ["- " + str(problem).replace("\n", "\n  ") for problem in self.problems]
        super().__init__("\n".join(lines))


class Inaccessible(UserError):
    """Nobody gets into a host: its key has changed, it accepts none of ours, it has no shell or no sudo. The user can
    fix that; and whoever has root on the host can bring it about."""


class Unreachable(AutarkyError):
    """No answer: the state is unknown, which is never the same as down (rule 2)."""

    exit_code = 3


class TimedOut(AutarkyError):
    """A named wait passed its deadline; the text carries the last thing that was seen."""

    exit_code = 4


class Conflict(AutarkyError):
    """Somebody else changed the object meanwhile, or holds the lock."""

    exit_code = 5


class Held(Conflict):
    """Somebody else holds the lock on a host. `holder` is what they wrote beside it."""

    def __init__(self, host: str, holder: str) -> None:
        self.holder = holder
        super().__init__(f"{host} is in use: {holder}")


class Refused(AutarkyError):
    """A safety rule forbids the step. Names the rule, what was seen, and the command to continue with."""

    exit_code = 6

    def __init__(self, rule: str, seen: str, go_on: str) -> None:
        self.rule = rule
        super().__init__(f"refused by the rule «{rule}»: {seen}\n  to go on: {go_on}")


class CommandFailed(AutarkyError):
    """A program on a host failed. `argv` never holds secrets (rule 7), so it may be shown."""

    def __init__(self, host: str, argv: Sequence[str], status: int, stderr: str) -> None:
        self.status = status
        self.stderr = stderr
        tail = " ".join(stderr.split())[-2000:]  # one line: the host may be in the hands of an attacker
        super().__init__(f"{host}: {' '.join(argv)[:400]} ended with status {status}: {tail}")


class ApiError(AutarkyError):
    """An API answered with an error status: of HTTP, or of gRPC for CRI. `reason` is its name, if any."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        self.status = status
        self.reason = reason
        super().__init__(f"{status} {reason}: {message}")
