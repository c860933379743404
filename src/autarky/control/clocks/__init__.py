"""Clocks that differ between control nodes, or were set back."""
