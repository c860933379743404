"""Scheduler and controller-manager: who leads, by the lease, and which slot runs for it."""
