"""The ControlPlane's status."""
