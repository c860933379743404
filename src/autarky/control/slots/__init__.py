"""The two slots of a component on a control node: the hosted one, its standby, and who runs when."""
