"""Who owns a field: what was applied last, what is wanted, what is live."""
