"""What the node agent does for this subject."""
