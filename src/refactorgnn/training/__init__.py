"""Training: settings and the loop."""
