"""The availability probe: what a client of the API notices, while something is done to the cluster."""

from autarky.probe.probe import Probe, Rates, Target
from autarky.probe.record import Report

__all__ = ["Probe", "Rates", "Report", "Target"]
