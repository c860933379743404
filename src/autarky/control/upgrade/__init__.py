"""Another version of Kubernetes for the control plane, step by step, as the ControlPlane's spec asks for."""
