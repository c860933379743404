"""The operator: what needs the API and the whole cluster in view, done by one leader at a time."""
