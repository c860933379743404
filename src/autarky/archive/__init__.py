"""Backups as files: sealed archives, and the places where they are kept."""

from autarky.archive.opening import Unlock, opened
from autarky.archive.sealing import Lock, Part, Sealed, check_lock, fresh_identity, passphrase_lock, seal
from autarky.archive.targets import S3, Directory, Target

__all__ = [
    "S3",
    "Directory",
    "Lock",
    "Part",
    "Sealed",
    "Target",
    "Unlock",
    "check_lock",
    "fresh_identity",
    "opened",
    "passphrase_lock",
    "seal",
]
