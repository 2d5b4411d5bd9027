"""The commands of the command line, a file each. They join the parts: the only place that knows all of them."""
