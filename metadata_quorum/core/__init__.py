"""The pure part of the quorum: the cluster's state, the rules that change it, and the controller's decisions.

Nothing here touches a clock, a socket, a file, a thread or a random number. `apply` is the only writer of a state; it
runs on every quorum node and in every broker that watches, and gives the same state everywhere. The other modules
decide: they read a state and return the protobuf change to commit, or the error to answer with.
"""
