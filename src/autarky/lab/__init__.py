"""Test hosts on one machine: runc containers that boot systemd, with their own network, disk and power."""

from autarky.lab.lab import HostRecord, Lab
from autarky.lab.machine import Seed

__all__ = ["HostRecord", "Lab", "Seed"]
