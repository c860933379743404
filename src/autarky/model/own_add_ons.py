"""The user's own add-ons, as they are in the directory `addons/` beside the cluster file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

DIRECTORY = "addons"
ENDINGS = (".yaml", ".yml", ".json")


@dataclass(frozen=True, slots=True)
class OwnObject:
    """where: its file and the number of its document there, for people."""

    file: str
    where: str
    content: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class OwnAddOns:
    """directory: its path. given: False where it has no file, which says nothing of what is wanted: it may be that the
    cluster file was copied without it, or that what belongs there is not mounted. A file with nothing but a comment
    says that no object is wanted. objects: in the order of the files' names, and in these of the documents."""

    directory: str
    given: bool
    objects: tuple[OwnObject, ...] = ()

    def files(self) -> Iterator[tuple[str, list[OwnObject]]]:
        for file in dict.fromkeys(one.file for one in self.objects):
            yield file, [one for one in self.objects if one.file == file]
