"""Leaf certificates: what there is to issue, and who renews it."""
