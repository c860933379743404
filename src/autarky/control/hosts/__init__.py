"""Hosts: what would stop a cluster on them, whose they are, whether a restarted kubelet is well."""
