"""The ControlPlane's spec carried out: levels that move between slots, arguments that change."""
