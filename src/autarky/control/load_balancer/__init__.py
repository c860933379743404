"""The load balancer on every node, and the endpoints of default/kubernetes."""
