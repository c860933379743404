"""`autarky status` and `node list`: what runs where, as hosts and API have it."""
