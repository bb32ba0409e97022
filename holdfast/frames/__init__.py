"""Segment: streams as numbered frames with an identity, a boundary and a checksum."""
