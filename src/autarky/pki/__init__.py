"""Keys and certificates: issuing them, keeping them in a directory, reading requests for them."""

from autarky.pki.store import PkiStore

__all__ = ["PkiStore"]
