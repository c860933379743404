"""Talking to the node's container runtime through CRI.

Import `autarky.cri.client`; nothing is imported here, because gRPC and protobuf cost memory that a standby
agent must not spend.
"""
