"""The standby as a copy of a healthy hosted pod: which pod becomes its next revision, and how."""
