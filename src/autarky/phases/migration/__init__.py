"""etcd moves into the cluster, or out of it, while the API serves: its members join and leave, one at a time.

Contract: at every moment all members are of one etcd, so that nothing is copied and no revision is lost. First the
members of the new place join, then the API servers are rolled to dial them, standbys included; only when none dials the
old place do the members there leave. Each phase looks at etcd itself for what is done already: killed anywhere, the
same command resumes, in either direction.

The exception is a copy (`copying`, `marking`): two etcds, of which at no time both take writes, and a pause in between.

Danger: whoever removes a member that an API server still dials takes that server's etcd away.
"""
