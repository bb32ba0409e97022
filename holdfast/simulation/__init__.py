"""Rehearsal: the protocol classes under a virtual clock, network and disk.

`simulate(protocol, graph, seeds)` in `run` plays one random schedule per seed:
crashes of units and hosts, cut edges, frozen instances that wake after they were
replaced, backups that crash, vanish or rot. Safety is checked after every step
(`checks`), liveness after the calm end, and a broken invariant prints the line that
replays it. A seed determines a schedule completely.

    graphs        SP1-SP4, diamond, random ones; the ideal run
    world         the virtual clock: one heap of things to come
    network       FIFO channels with delay, cuts, duplicates on reconnect
    stores        backup stores and their disks
    instances     one running instance of a unit, dead, frozen or alive
    supervision   the lives of the units: who notices, who activates
    faults        what goes wrong, and when
    checks        what must hold after every step and at the end
    schedule      one seed from start to calm end
    run           many seeds on all cores, the report
"""

__all__: list[str] = []
