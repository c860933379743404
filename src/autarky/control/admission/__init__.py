"""Who becomes a node: certificate requests are judged by the join inventory; and which node may be removed."""
