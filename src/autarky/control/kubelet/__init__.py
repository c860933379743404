"""The kubelets: their version and settings, changed through the API, with a way back."""
