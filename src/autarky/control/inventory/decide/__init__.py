"""Decisions of this subject. Pure."""
