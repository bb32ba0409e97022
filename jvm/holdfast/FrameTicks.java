package holdfast;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.nio.file.attribute.BasicFileAttributes;
import java.util.Arrays;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.connector.read.streaming.Offset;
import org.apache.spark.sql.connector.read.streaming.ReadLimit;
import org.apache.spark.sql.connector.read.streaming.SupportsAdmissionControl;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * The one streaming source of a unit: the frames it may take, as its host permits them.
 *
 * <p>It decides nothing. The host writes what is permitted into a file (as a whole, by rename); this
 * source hands out the numbers above the last offset, and the offset names every input frame used.
 * What is promised: the offsets, and the rows between two of them, are those of the source in
 * Python ({@code holdfast.engine.unit.frame_source}), so a checkpoint made with one is continued with the other.
 *
 * <p>In Python the source costs an interpreter per query, which takes longer to start than a frame
 * takes to run, and two answers over a socket for every batch. It remains for sessions that were
 * not made by Holdfast.
 */
public class FrameTicks implements TableProvider {

  private static final StructType SCHEMA = new StructType().add("n", DataTypes.LongType);
  private static final ObjectMapper JSON = new ObjectMapper();

  @Override
  public StructType inferSchema(CaseInsensitiveStringMap options) {
    return SCHEMA;
  }

  @Override
  public Table getTable(StructType schema, Transform[] partitioning, Map<String, String> properties) {
    return new Frames();
  }

  /** The frames as Spark sees them: a table that can only be read in micro-batches. */
  public static class Frames implements SupportsRead {

    @Override
    public String name() {
      return "holdfast-frames";
    }

    @Override
    public StructType schema() {
      return SCHEMA;
    }

    @Override
    public Set<TableCapability> capabilities() {
      return Set.of(TableCapability.MICRO_BATCH_READ);
    }

    @Override
    public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
      Path permits = Paths.get(options.get("permits"));
      long after = Long.parseLong(options.get("after"));
      return () -> new Permitted(permits, after);
    }
  }

  /** A scan, and the stream it makes: both know the file and the frame before the first. */
  public static class Permitted implements Scan, MicroBatchStream, SupportsAdmissionControl {

    /** Spark asks again after every empty answer; 50 ms keeps that to twenty calls a second. */
    private static final long WAIT_NS = 50_000_000L;

    /** A look at a small file takes a few microseconds: a thousand a second are noise. */
    private static final long POLL_MS = 1;

    private final Path permits;
    private final long after;
    private Object seen = null;
    private JsonNode known = JSON.createArrayNode();

    Permitted(Path permits, long after) {
      this.permits = permits;
      this.after = after;
    }

    @Override
    public StructType readSchema() {
      return SCHEMA;
    }

    @Override
    public MicroBatchStream toMicroBatchStream(String checkpointLocation) {
      return this;
    }

    @Override
    public Offset initialOffset() {
      return new Position(after, JSON.createArrayNode());
    }

    @Override
    public Offset deserializeOffset(String json) {
      try {
        JsonNode said = JSON.readTree(json);
        return new Position(said.get("n").asLong(), (ArrayNode) said.get("inputs"));
      } catch (IOException error) {
        throw new UncheckedIOException(error);
      }
    }

    @Override
    public Offset latestOffset() {
      throw new UnsupportedOperationException("latestOffset(Offset, ReadLimit) is called instead");
    }

    /** Where the next batch ends: behind all that is permitted. Null if that is nothing: no batch. */
    @Override
    public Offset latestOffset(Offset start, ReadLimit limit) {
      long last = ((Position) start).n;
      long deadline = System.nanoTime() + WAIT_NS;
      try {
        while (true) {
          long end = last;
          ArrayNode inputs = JSON.createArrayNode();
          for (JsonNode permit : permitted()) {
            if (permit.get("n").asLong() > last) {
              end = permit.get("n").asLong();
              inputs.addAll((ArrayNode) permit.get("inputs"));
            }
          }
          if (end > last) {
            return new Position(end, inputs);
          }
          if (System.nanoTime() >= deadline) {
            return null;
          }
          Thread.sleep(POLL_MS);
        }
      } catch (IOException error) {
        throw new UncheckedIOException(error);
      } catch (InterruptedException stopped) {
        Thread.currentThread().interrupt();
        return null;
      }
    }

    /** The file is read again when it is another one: a name is given to whole files only. */
    private JsonNode permitted() throws IOException {
      try {
        BasicFileAttributes now = Files.readAttributes(permits, BasicFileAttributes.class);
        Object stamp = Arrays.asList(now.fileKey(), now.lastModifiedTime());
        if (!stamp.equals(seen)) {
          known = JSON.readTree(Files.readAllBytes(permits));
          seen = stamp;
        }
        return known;
      } catch (NoSuchFileException none) {
        return JSON.createArrayNode();
      }
    }

    @Override
    public InputPartition[] planInputPartitions(Offset start, Offset end) {
      return new InputPartition[] {new Numbers(((Position) start).n, ((Position) end).n)};
    }

    @Override
    public PartitionReaderFactory createReaderFactory() {
      return new Counting();
    }

    @Override
    public void commit(Offset end) {
      // Lags a batch and never comes on stop: no signal for us.
    }

    @Override
    public void stop() {}
  }

  /** The last frame taken, and every input frame of the batch that took it. */
  public static class Position extends Offset {

    final long n;
    private final String json;

    Position(long n, ArrayNode inputs) {
      this.n = n;
      ObjectNode said = JSON.createObjectNode().put("n", n);
      said.set("inputs", inputs);
      this.json = said.toString();
    }

    @Override
    public String json() {
      return json;
    }
  }

  /** The frames after {@code after}, up to {@code last}. */
  public static class Numbers implements InputPartition {

    final long after;
    final long last;

    Numbers(long after, long last) {
      this.after = after;
      this.last = last;
    }
  }

  /** Makes a row of each number; sent to the task, so it holds nothing. */
  public static class Counting implements PartitionReaderFactory {

    @Override
    public PartitionReader<InternalRow> createReader(InputPartition partition) {
      Numbers numbers = (Numbers) partition;
      return new PartitionReader<InternalRow>() {
        private long n = numbers.after;

        @Override
        public boolean next() {
          return ++n <= numbers.last;
        }

        @Override
        public InternalRow get() {
          return new GenericInternalRow(new Object[] {n});
        }

        @Override
        public void close() {}
      };
    }
  }
}
