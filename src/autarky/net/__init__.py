"""HTTP with TLS: the only package that imports httpx2. The adapters above it share nothing else."""
