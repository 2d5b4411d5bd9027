"""Reducers: State + event → State. Pure."""
