"""The two slots of a component on a control node, hosted and standby, and which of them runs when."""
