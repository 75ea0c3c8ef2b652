"""A deterministic simulation of controller, sessions and brokers: one thread, a clock moved by hand, seeded dice.

The controller, its sessions and the state machine are the production code; Raft, the network and the brokers are
models. Entry point: `lograft.chaos.sim.cluster.run`.
"""
