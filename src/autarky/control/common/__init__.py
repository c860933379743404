"""Pure functions that the decisions of several subjects use."""
