"""The fields of what is read out of annotations: of the right type and size, or a ValueError. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from autarky.control.common.shapes import mapping
from autarky.model.versions import Version

_VERSION = re.compile(r"v?[0-9]{1,4}\.[0-9]{1,4}\.[0-9]{1,6}")
WORD = re.compile(r"[\x21-\x7e]{0,256}")
NOT_UNDERSTOOD = (ValueError, KeyError, TypeError, AttributeError, RecursionError)
"""What may be raised for any JSON by a reader that takes its fields from here."""


def annotation(metadata: Mapping[str, Any], name: str, most: int) -> str | None:
    """Of an object; None where it is not there, or has more letters."""
    value = mapping(metadata.get("annotations")).get(name)
    return value if isinstance(value, str) and len(value) <= most else None


def number(value: object, most: int) -> int:
    if type(value) is not int or not 0 <= value <= most:
        raise ValueError("no such number")
    return value


def fitting(pattern: re.Pattern[str], value: object) -> str:
    if not isinstance(value, str) or pattern.fullmatch(value) is None:
        raise ValueError("no such text")
    return value


def version(value: object) -> Version:
    return Version.parse(fitting(_VERSION, value))
