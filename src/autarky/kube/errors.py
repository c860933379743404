"""From what an API server answers to the errors of our own tree."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from autarky.errors import ApiError, AutarkyError, Conflict
from autarky.parsing import parsed
from autarky.ports import Object


def error_of(status: int, body: bytes) -> AutarkyError:
    """Conflict for 409, else ApiError. The body is a Status object, or whatever a proxy says."""
    return error_of_status(status_object(body), status) or _without_status(status, body)


def error_of_status(status: Object | None, code: int = 500) -> AutarkyError | None:
    """The error of a Status object, also of one that came in a watch; None where there is none."""
    if status is None:
        return None
    code = status.get("code") or code
    reason, message = status.get("reason") or _phrase(code), status.get("message") or "no message"
    return Conflict(f"{reason}: {message}") if code == 409 else ApiError(code, reason, message)


def is_about(body: bytes, name: str) -> bool:
    """Whether a 404 says that the object of this name is absent, rather than its kind or namespace."""
    details = (status_object(body) or {}).get("details") or {}
    return bool(details.get("name") == name)


def status_object(body: bytes) -> Object | None:
    try:
        found: Any = parsed(body)
    except ValueError:
        return None
    return found if isinstance(found, dict) and found.get("kind") == "Status" else None


def failed_checks(body: bytes) -> str:
    """What a health endpoint says has failed, as a short clause."""
    lines = body.decode(errors="replace").splitlines()
    failed = [line.removeprefix("[-]").split(" failed")[0] for line in lines if line.startswith("[-]")]
    return f"not ok: {', '.join(failed)}" if failed else " ".join(lines)[:200]


def _without_status(status: int, body: bytes) -> AutarkyError:
    reason, message = _phrase(status), body[:500].decode(errors="replace").strip()
    return Conflict(f"{reason}: {message}") if status == 409 else ApiError(status, reason, message)


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase.replace(" ", "")
    except ValueError:
        return "Unknown"
