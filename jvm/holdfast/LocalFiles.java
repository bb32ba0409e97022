package holdfast;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.attribute.PosixFilePermission;
import java.util.EnumSet;
import java.util.Set;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;

/**
 * Hadoop's local file system without a forked process per file.
 *
 * <p>Without Hadoop's native library, {@link RawLocalFileSystem} runs {@code chmod} for every file
 * and folder it creates, and {@code readlink} for every status of a link. A micro-batch of Spark
 * makes four such forks, a stateful one more: they cost more than the batch. The Java library has
 * both as system calls since Java 7.
 *
 * <p>What is promised: files and permissions end up exactly as with Hadoop's own class; what Java
 * cannot express (the sticky bit, symbolic links, file systems without POSIX permissions) goes
 * the old way. Nothing else changes: names, rename, checksums are Hadoop's. It has to extend
 * {@link LocalFileSystem}, because Spark's RocksDB store casts to it.
 *
 * <p>Set by {@code holdfast.engine.session.spark_settings} as {@code spark.hadoop.fs.file.impl}.
 */
public class LocalFiles extends LocalFileSystem {

  public LocalFiles() {
    super(new Raw());
  }

  /** The layer below the checksums; this is where the forks were. */
  public static class Raw extends RawLocalFileSystem {

    private static final int STICKY = 01000;

    /** From the bit 0400 down to 0001, in the order of FsPermission.toShort(). */
    private static final PosixFilePermission[] BITS = {
      PosixFilePermission.OWNER_READ,
      PosixFilePermission.OWNER_WRITE,
      PosixFilePermission.OWNER_EXECUTE,
      PosixFilePermission.GROUP_READ,
      PosixFilePermission.GROUP_WRITE,
      PosixFilePermission.GROUP_EXECUTE,
      PosixFilePermission.OTHERS_READ,
      PosixFilePermission.OTHERS_WRITE,
      PosixFilePermission.OTHERS_EXECUTE
    };

    @Override
    public void setPermission(Path path, FsPermission permission) throws IOException {
      int mode = permission.toShort();
      if ((mode & STICKY) != 0) {
        super.setPermission(path, permission);
        return;
      }
      Set<PosixFilePermission> allowed = EnumSet.noneOf(PosixFilePermission.class);
      for (int i = 0; i < BITS.length; i++) {
        if ((mode & (0400 >> i)) != 0) {
          allowed.add(BITS[i]);
        }
      }
      try {
        Files.setPosixFilePermissions(pathToFile(path).toPath(), allowed);
      } catch (UnsupportedOperationException noPosixHere) {
        super.setPermission(path, permission);
      }
    }

    @Override
    public FileStatus getFileLinkStatus(Path path) throws IOException {
      // Hadoop forks readlink to learn whether there is a link at all. There hardly ever is.
      if (Files.isSymbolicLink(pathToFile(path).toPath())) {
        return super.getFileLinkStatus(path);
      }
      return getFileStatus(path);
    }
  }
}
