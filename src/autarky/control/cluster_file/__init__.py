"""The cluster file compared with the existing cluster."""
