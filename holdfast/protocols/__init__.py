"""Protection protocols: pure state machines, one protocol per file.

Events in, instructions out. No machine here owns a clock, a source of chance, a
thread, a file, a socket or a Spark session; whatever they need of those arrives
inside an event. So the classes that `engine` and `hosts` drive on Spark are the very
classes that `simulation` drives under random faults, and a proof about one is a proof
about the other. Every header says who drives it, and a test looks whether that is so.

How the pieces meet, from the wire inwards:

    unit          one running instance of a unit: everything below, glued
      edges       the two ends of an edge: duplicates, gaps, replay, refusal
      fencing     who may speak: epochs, their register, the refusal of lower ones
      queue       one stream: sealed frames kept until every reader acked
      ports       all edges of a unit: the alignment of frame n, room for it
      none, checkpoint, uncoordinated, synchronised, ecoc, extended
                  when to checkpoint, what goes in, when it counts, what to ack
      driving     what such a machine says, carried out: one way for all drivers
    shipping      one unit's way to its k backup copies
    storing       one backup store: content first, manifest last, one lock
    activation    claim an epoch, find the newest good checkpoint, start
"""

__all__: list[str] = []
