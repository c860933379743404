"""What the operator does for this subject."""
