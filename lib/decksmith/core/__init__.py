"""What every room stands on: the frame of a script, streams of records, protocols, masked secrets, small HTTP servers, walls around a process.

In: flags, files, stdin. Out: the same for every script: exit codes, journals, error sentences.

Used by every script. May import nothing of the other rooms.
"""
