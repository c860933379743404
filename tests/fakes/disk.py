"""What a host in memory has on its disk: files, links and the directories that they lie in, by absolute paths."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import PurePosixPath

MOST_LINKS = 40
"""On one way; as Linux."""


class CannotBe(Exception):
    """What was asked for cannot be done; says why, as a program would."""


@dataclass(slots=True)
class Disk:
    """files: path → content and mode; links: path → target, as it was written; directories: those that may be empty.

    A path means what it means on a host: links on its way are followed, and one at its end where `followed` is used.
    """

    files: dict[str, tuple[bytes, int]] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    directories: set[str] = field(default_factory=set)

    def followed(self, path: str) -> str:
        """Where it leads, whatever is there. CannotBe where its links never end."""
        parts, done, followed = deque(PurePosixPath(path).parts[1:]), PurePosixPath("/"), 0
        while parts:
            part = parts.popleft()
            here = done.parent if part == ".." else done / part
            if (target := self.links.get(str(here))) is None:
                done = here
                continue
            if (followed := followed + 1) > MOST_LINKS:
                raise CannotBe(f"{path}: Too many levels of symbolic links")
            if target.startswith("/"):
                done = PurePosixPath("/")
            parts.extendleft(reversed([part for part in PurePosixPath(target).parts if part != "/"]))
        return str(done)

    def place(self, path: str) -> str:
        """The path itself, where the links on its way lead to its directory."""
        pure = PurePosixPath(path)
        return str(PurePosixPath(self.followed(str(pure.parent))) / pure.name)

    def file(self, path: str) -> tuple[bytes, int] | None:
        """Content and mode of what it leads to; None where that is no file."""
        return self.files.get(self._end_of(path))

    def leads_to_directory(self, path: str) -> bool:
        return self.is_directory(self._end_of(path))

    def _end_of(self, path: str) -> str:
        """Nothing is at the end of a way that has none."""
        try:
            return self.followed(path)
        except CannotBe:
            return ""

    def is_directory(self, place: str) -> bool:
        return bool(place) and (place in self.directories or any(self._beneath(place)))

    def names(self, place: str) -> list[str]:
        """What `ls` shows of a directory."""
        found = {PurePosixPath(path).relative_to(place).parts[0] for path in self._beneath(place)}
        return sorted(name for name in found if not name.startswith("."))

    def _beneath(self, place: str) -> Iterator[str]:
        inside = f"{place.rstrip('/')}/"
        return (path for path in (*self.files, *self.links, *self.directories) if path.startswith(inside))

    # --- changes ---

    def write(self, path: str, content: bytes, mode: int) -> None:
        """As one rename: a link is replaced, not followed."""
        place = self.place(path)
        if self.is_directory(place):
            raise CannotBe(f"cannot overwrite directory '{path}' with non-directory")
        self._refuse_files_on_the_way(place)
        self.links.pop(place, None)
        self.files[place] = (content, mode)

    def link(self, path: str, target: str) -> None:
        """As `ln -sfn` and one rename: a file is replaced, and so is a link to a directory."""
        place = self.place(path)
        if self.is_directory(place):
            raise CannotBe(f"cannot overwrite directory '{path}' with non-directory")
        self._refuse_files_on_the_way(place)
        self.files.pop(place, None)
        self.links[place] = target

    def remove(self, path: str) -> None:
        place = self.place(path)
        if self.is_directory(place):
            raise CannotBe(f"cannot remove '{path}': Is a directory")
        self.files.pop(place, None)
        self.links.pop(place, None)

    def make_directory(self, path: str) -> None:
        place = self.followed(path)
        if place in self.files:
            raise CannotBe(f"cannot create directory '{path}': File exists")
        self._refuse_files_on_the_way(place)
        self.directories.add(place)

    def _refuse_files_on_the_way(self, place: str) -> None:
        for directory in PurePosixPath(place).parents:
            if str(directory) in self.files:
                raise CannotBe(f"cannot create directory '{directory}': Not a directory")
