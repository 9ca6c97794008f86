"""What else broke: benchmarks, the sandbox that runs programs, and an eval server."""
