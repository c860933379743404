"""The user's cluster file: read, checked completely, turned into the model."""

from autarky.config.load import default_cluster, dump, json_schema, load, loads

__all__ = ["default_cluster", "dump", "json_schema", "load", "loads"]
