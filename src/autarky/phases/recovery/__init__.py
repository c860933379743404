"""A new etcd cluster from old data: of a member that is left, or of a snapshot.

Contract: one mechanism for a lost quorum, a restore and its undoing. The old members are fenced: nothing starts them
any more. On one host, the seat, the data of a new etcd cluster with one member is made beside the old data, complete or
absent; then the two change places, the control plane is started afresh with it, and all other members join it with
empty directories. The new cluster has an id of its own and a revision far above the old one, so that no cache takes its
objects for those that it knows. The old data is moved aside, never deleted (rule 3).

Killed anywhere, the same command resumes: what has been made lies on the seat under the recovery's id, and `ready` in
it says that it is complete. Before that the old members can be released again, and are, if anything fails. No other
command resumes it: weeks later it would replace an etcd that serves. Nor does any begin where a member serves that it
cannot stop.
"""
