"""HTTP with TLS: the only place that imports httpx2."""
