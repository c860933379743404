"""Pure parts that several subjects decide by."""
