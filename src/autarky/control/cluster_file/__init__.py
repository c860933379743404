"""The cluster file against the cluster that is there."""
