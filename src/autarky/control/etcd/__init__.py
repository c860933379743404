"""etcd's members: which nodes have one, how one comes and goes, and its pods."""
