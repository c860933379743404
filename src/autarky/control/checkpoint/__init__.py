"""The standby as a copy of what runs well: which pod becomes its next revision, and how."""
