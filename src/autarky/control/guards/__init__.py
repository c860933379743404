"""Admission policies that restrict nodes, tenants and others to what is theirs."""
