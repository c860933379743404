"""Host drivers: one Host port, everything over "run a program there"."""

from autarky.hosts.lab import LabHost
from autarky.hosts.local import LocalHost

__all__ = ["LabHost", "LocalHost"]
