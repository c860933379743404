"""What the controllers of both agents share: shielding, what was decided and told, live copies of the API."""
