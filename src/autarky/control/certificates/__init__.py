"""Leaf certificates: which are issued, and who renews them."""
