"""The node agent: acts on the slots of its own node, with or without an API."""
