"""The JVM: sessions, their settings, Java, the class archive. Imports no other package of the engine."""
