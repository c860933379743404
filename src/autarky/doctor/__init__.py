"""`autarky doctor`: evidence from hosts and API, and the findings that follow."""
