import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.HexFormat;
import org.apache.iceberg.DataFile;
import org.apache.iceberg.DeleteFile;
import org.apache.iceberg.connect.events.*;

/** Decodes one event per line of hex with the Java sink's own classes, and prints what it found. */
public class Decode {
  public static void main(String[] args) throws Exception {
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
    for (String line = in.readLine(); line != null; line = in.readLine()) {
      Event event = AvroUtil.decode(HexFormat.of().parseHex(line.trim()));
      StringBuilder out = new StringBuilder(event.groupId() + " " + event.payload().getClass().getSimpleName());
      if (event.payload() instanceof DataWritten written) {
        out.append(" ").append(written.tableReference().identifier());
        for (DataFile file : written.dataFiles()) {
          out.append(" ").append(file.location()).append(" ").append(file.recordCount());
          out.append(" ").append(file.specId()).append(" ").append(file.partition());
          out.append(" ").append(file.valueCounts()).append(" ").append(file.lowerBounds().keySet());
        }
        for (DeleteFile file : written.deleteFiles()) {
          out.append(" ").append(file.location()).append(" ").append(file.content()).append(" ").append(file.equalityFieldIds());
        }
      } else if (event.payload() instanceof DataComplete complete) {
        for (TopicPartitionOffset p : complete.assignments()) {
          out.append(" ").append(p.topic()).append("-").append(p.partition()).append("@").append(p.offset());
          out.append(" ").append(p.timestamp());
        }
      } else if (event.payload() instanceof CommitToTable commit) {
        out.append(" ").append(commit.snapshotId()).append(" ").append(commit.validThroughTs());
      } else if (event.payload() instanceof CommitComplete complete) {
        out.append(" ").append(complete.validThroughTs());
      }
      System.out.println(out);
    }
  }
}
