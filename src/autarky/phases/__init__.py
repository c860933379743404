"""One module per topic: look, plan, act, verify. Phases act through ports and decide through `decide`."""
