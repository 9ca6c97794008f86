"""How models are asked. In: messages and sampling. Out: a reply, or the failure of one request.

Used by chat.py, the one client. May import cli and stream, and nothing above them.
"""
