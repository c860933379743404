"""What this subject renders. Pure."""
