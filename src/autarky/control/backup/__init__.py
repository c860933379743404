"""Backups: which are made, where, and for how long they are kept."""
