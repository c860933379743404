"""autarky: Kubernetes that runs itself.

One package with a CLI, a node agent and an operator. See docs/architecture.md for
how the parts depend on each other; the import rules are contracts in pyproject.toml.
"""

__version__ = "0.1.0"
