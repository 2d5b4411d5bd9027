"""The demo's cluster: nodes, files and incidents."""
