"""Hosts: what would keep a cluster from coming up, whom they belong to, whether a restarted kubelet is healthy."""
