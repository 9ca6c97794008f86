"""Rewards: the share of checks that a rendered deck passes, for a training loop or to choose among
samples.

In: deck records as deck-render leaves them, and the rules of assets/rewards. Out: a reward from 0
to 1 with its components, or none where the fault is ours.

Used by deck-reward, deck-choose, deck-revise, reward-serve and env-export. May import every room
but demo, study and evalserver.
"""
