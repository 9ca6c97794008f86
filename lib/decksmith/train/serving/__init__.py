"""One server that answers as the base model and as the adapter.

In: an adapter. Out: an address, after the two names were heard to differ.

Used by model-serve, model-wait. May import hub, models and core.
"""
