"""Tests of trainmon.analysis.retries."""
