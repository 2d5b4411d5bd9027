"""What people say of alerts, carried out. Pure."""
