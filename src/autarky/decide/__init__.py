"""Decisions as pure functions: what was wanted and seen goes in, actions and one sentence come out."""
