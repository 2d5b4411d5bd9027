"""Tests of the explanation of an attempt."""
