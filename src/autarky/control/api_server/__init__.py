"""The API server in both slots."""
