"""What the State shows of the attempts of its runs. Pure."""
