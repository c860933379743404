"""Who becomes a node: certificate requests judged by the join inventory; and who may be taken out."""
