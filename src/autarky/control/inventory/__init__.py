"""The inventory of what `up` has applied, and what of it is removed once it is no longer wanted."""
