"""The two agents themselves: their pods, their rights, and the standby of the node agent."""
