"""The availability probe: what a client of the API notices while something is done to the cluster."""

from autarky.probe.outcome import Failure, Kind, Stream
from autarky.probe.probe import Probe, Rates
from autarky.probe.report import Report

__all__ = ["Failure", "Kind", "Probe", "Rates", "Report", "Stream"]
