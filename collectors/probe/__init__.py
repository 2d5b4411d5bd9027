"""What runs on a node: the standard library and NVIDIA's pynvml, Python 3.6 and later, sent over ssh."""
