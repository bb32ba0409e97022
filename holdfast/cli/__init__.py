"""show: the shell's view of stream processes. Decides nothing."""

__all__: list[str] = []
