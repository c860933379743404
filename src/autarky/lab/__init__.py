"""Test hosts on one machine: runc containers that boot systemd, with their own network, disk and power."""

from autarky.lab.lab import HostRecord, Lab
from autarky.lab.machine import Seed
from autarky.lab.tools import refuse_unfit_machine

__all__ = ["HostRecord", "Lab", "Seed", "refuse_unfit_machine"]
