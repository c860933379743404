"""What a person asks of a running cluster with one command, through the hosts: it works with the API down."""
