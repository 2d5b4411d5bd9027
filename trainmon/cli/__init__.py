"""The command line. Only this package may import all others."""
