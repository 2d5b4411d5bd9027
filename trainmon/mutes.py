"""What is not told for a while: silences of people, and maintenance windows. Pure."""
