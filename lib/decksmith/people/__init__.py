"""Ask people, and show it to somebody: blind votes and a demo."""
