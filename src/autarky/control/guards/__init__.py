"""Policies that hold nodes, tenants and strangers to what is theirs."""
