"""Host drivers: one Host port, everything over "run a program there"."""

from autarky.hosts.lab import LabHost
from autarky.hosts.local import LocalHost
from autarky.hosts.ssh import SshHost

__all__ = ["LabHost", "LocalHost", "SshHost"]
