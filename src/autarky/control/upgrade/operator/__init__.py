"""Carrying out an upgrade, step by step."""
