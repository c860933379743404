"""The operator: what needs the API and a view of the complete cluster, done by one leader at a time."""
