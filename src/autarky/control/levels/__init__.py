"""Applies the ControlPlane's spec: levels move between slots, arguments change."""
