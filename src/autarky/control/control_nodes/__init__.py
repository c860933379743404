"""Control nodes that a label makes and takes apart."""
