"""Steps that `up` and the operator both take, through ports: each is written once, here."""
