"""What every room stands on. Imports nothing of the others; every script uses it."""
