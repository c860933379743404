"""The node agent: switches the slots of its own node, with or without an API."""
