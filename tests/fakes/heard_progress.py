"""A Progress that remembers what it heard."""

from __future__ import annotations


class HeardProgress:
    def __init__(self) -> None:
        self.notes: list[str] = []
        self.steps: list[tuple[str, float, float]] = []

    def note(self, sentence: str) -> None:
        self.notes.append(sentence)

    def progress(self, what: str, done: float, total: float) -> None:
        self.steps.append((what, done, total))

    def waiting(self, what: str, deadline: float, last: str) -> None:
        self.notes.append(f"{what}: {last}")
