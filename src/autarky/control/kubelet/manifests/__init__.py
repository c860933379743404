"""What is on a node of this subject: its files, its script and its units. Pure."""
