"""A corpus, an adapter trained on it, rewards, a server for both, and what is published."""
