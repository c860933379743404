"""What the controllers of both agents share: retries, the decision log, events, health, live copies of API objects."""
