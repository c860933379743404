"""The two agents themselves: their pods, their rights, and the standby node agent."""
