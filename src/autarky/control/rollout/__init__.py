"""Rollouts of hosted components: judged, taken back, carried on past nodes that are away."""
