"""Rollouts of hosted components: judge them, roll them back, continue them past nodes that are away."""
