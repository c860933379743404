"""The vocabulary: what a cluster should be and what was seen of it, as frozen values. stdlib only."""
