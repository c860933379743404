"""Who owns a field: the values that were applied last, that are wanted now, and that are live."""
