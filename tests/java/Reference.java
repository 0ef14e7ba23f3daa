import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Constructor;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.LocalTime;
import java.time.OffsetDateTime;
import java.time.ZoneOffset;
import java.time.temporal.ChronoField;
import java.util.Base64;
import java.util.Collection;
import java.util.Date;
import java.util.HashMap;
import java.util.Map;
import java.util.TreeMap;
import java.util.UUID;
import org.apache.iceberg.SchemaParser;
import org.apache.iceberg.Table;
import org.apache.iceberg.connect.IcebergSinkConfig;
import org.apache.iceberg.data.Record;
import org.apache.iceberg.types.Types;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.connect.data.Field;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.SchemaAndValue;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.header.Header;
import org.apache.kafka.connect.json.JsonConverter;
import org.apache.kafka.connect.sink.SinkRecord;
import org.apache.kafka.connect.transforms.Transformation;

/**
 * Kafka Connect and the Java sink as a function: a question per line of JSON, an answer per line.
 *
 * <p>Values are told apart in the answers: whole numbers and text are JSON's, {"double": text}, {"float": text},
 * {"decimal": text}, {"bytes": base64}, {"timestamp"|"date"|"time": milliseconds}, {"map": pairs}, {"object": fields}.
 */
public class Reference {
  private static final ObjectMapper JSON = new ObjectMapper();
  private static final JsonNodeFactory NODES = JsonNodeFactory.instance;
  private static final String DATA = "org.apache.kafka.connect.data.";

  public static void main(String[] args) throws Exception {
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
    for (String line = in.readLine(); line != null; line = in.readLine()) {
      out.println(answer(JSON.readTree(line)));
      out.flush();
    }
  }

  private static JsonNode answer(JsonNode question) {
    try {
      ArrayNode answers = NODES.arrayNode();
      Each each = each(question);
      for (JsonNode record : question.get("records")) {
        answers.add(one(each, record));
      }
      return answers;
    } catch (Exception e) {
      return failure(e);
    }
  }

  private interface Each {
    JsonNode apply(JsonNode record) throws Exception;
  }

  private static JsonNode one(Each each, JsonNode record) {
    try {
      return each.apply(record);
    } catch (Exception | StackOverflowError e) {
      return failure(e);
    }
  }

  private static JsonNode failure(Throwable e) {
    Throwable cause = e instanceof InvocationTargetException ? e.getCause() : e;
    return NODES.objectNode().put("error", cause.getClass().getSimpleName() + ": " + cause.getMessage());
  }

  private static Each each(JsonNode question) throws Exception {
    if (question.has("transform")) {
      return transform(question);
    }
    if (question.has("table")) {
      return table(question);
    }
    return record -> rendered(side(record, "value"));
  }

  private static SchemaAndValue side(JsonNode record, String name) {
    JsonNode value = record.get(name);
    if (value == null || value.isNull()) {
      return SchemaAndValue.NULL;
    }
    JsonConverter converter = new JsonConverter(false);
    converter.configure(Map.of("schemas.enable", record.get("typed").asBoolean()), name.equals("key"));
    return converter.toConnectData("t", value.asText().getBytes(StandardCharsets.UTF_8));
  }

  // ---- transforms

  private static Each transform(JsonNode question) throws Exception {
    Class<?> kind = Class.forName(question.get("transform").asText());
    @SuppressWarnings("unchecked")
    Transformation<SinkRecord> transform = (Transformation<SinkRecord>) kind.getDeclaredConstructor().newInstance();
    Map<String, String> options = new HashMap<>();
    question.get("options").fields().forEachRemaining(e -> options.put(e.getKey(), e.getValue().asText()));
    transform.configure(options);
    return record -> {
      SchemaAndValue key = side(record, "key");
      SchemaAndValue value = side(record, "value");
      Long timestamp = record.get("timestamp").isNull() ? null : record.get("timestamp").asLong();
      SinkRecord made = new SinkRecord(record.get("topic").asText(), record.get("partition").asInt(), key.schema(),
          key.value(), value.schema(), value.value(), record.get("offset").asLong(), timestamp,
          TimestampType.CREATE_TIME);
      SinkRecord after = transform.apply(made);
      return after == null ? NODES.objectNode().put("dropped", true) : rendered(after);
    };
  }

  private static JsonNode rendered(SinkRecord record) {
    ObjectNode out = NODES.objectNode().put("topic", record.topic());
    out.set("key", rendered(record.key(), record.keySchema()));
    out.set("value", rendered(record.value(), record.valueSchema()));
    out.set("type", type(record.valueSchema()));
    ArrayNode headers = out.putArray("headers");
    for (Header header : record.headers()) {
      headers.addArray().add(header.key()).add(rendered(header.value(), header.schema()));
    }
    return out;
  }

  // ---- values of Connect

  private static JsonNode rendered(SchemaAndValue found) {
    ObjectNode out = NODES.objectNode();
    out.set("value", rendered(found.value(), found.schema()));
    out.set("type", type(found.schema()));
    return out;
  }

  private static JsonNode type(Schema schema) {
    if (schema == null) {
      return NODES.nullNode();
    }
    if (schema.name() != null && schema.name().startsWith(DATA)) {
      String parameter = schema.parameters() == null ? "" : schema.parameters().getOrDefault("scale", "");
      return NODES.textNode(schema.name().substring(DATA.length()).toLowerCase() + parameter);
    }
    switch (schema.type()) {
      case STRUCT:
        ObjectNode fields = NODES.objectNode();
        for (Field field : schema.fields()) {
          fields.set(field.name(), type(field.schema()));
        }
        return fields;
      case ARRAY:
        return NODES.arrayNode().add(type(schema.valueSchema()));
      case MAP:
        return NODES.arrayNode().add(type(schema.keySchema())).add(type(schema.valueSchema()));
      default:
        return NODES.textNode(schema.type().getName());
    }
  }

  private static JsonNode rendered(Object value, Schema schema) {
    if (value instanceof Date) {
      String name = schema == null || schema.name() == null ? "Timestamp" : schema.name().replace(DATA, "");
      return NODES.objectNode().put(name.toLowerCase(), ((Date) value).getTime());
    }
    if (value instanceof Struct) {
      ObjectNode fields = NODES.objectNode();
      for (Field field : ((Struct) value).schema().fields()) {
        fields.set(field.name(), rendered(((Struct) value).get(field), field.schema()));
      }
      return NODES.objectNode().set("object", fields);
    }
    if (value instanceof Collection) {
      ArrayNode items = NODES.arrayNode();
      for (Object item : (Collection<?>) value) {
        items.add(rendered(item, schema == null ? null : schema.valueSchema()));
      }
      return items;
    }
    if (value instanceof Map && schema == null) {
      ObjectNode fields = NODES.objectNode();
      ((Map<?, ?>) value).forEach((k, v) -> fields.set(k.toString(), rendered(v, null)));
      return NODES.objectNode().set("object", fields);
    }
    if (value instanceof Map) {
      Map<String, JsonNode> pairs = new TreeMap<>();
      ((Map<?, ?>) value).forEach((k, v) -> pairs.put(rendered(k, schema.keySchema()).toString(),
          NODES.arrayNode().add(rendered(k, schema.keySchema())).add(rendered(v, schema.valueSchema()))));
      return NODES.objectNode().set("map", NODES.arrayNode().addAll(pairs.values()));
    }
    return plain(value);
  }

  private static JsonNode plain(Object value) {
    if (value == null) {
      return NODES.nullNode();
    }
    if (value instanceof Boolean) {
      return NODES.booleanNode((Boolean) value);
    }
    if (value instanceof Double) {
      return NODES.objectNode().put("double", value.toString());
    }
    if (value instanceof Float) {
      return NODES.objectNode().put("float", value.toString());
    }
    if (value instanceof BigDecimal) {
      return NODES.objectNode().put("decimal", ((BigDecimal) value).toPlainString());
    }
    if (value instanceof Number) {
      return NODES.numberNode(new BigInteger(value.toString()));
    }
    if (value instanceof byte[]) {
      return NODES.objectNode().put("bytes", Base64.getEncoder().encodeToString((byte[]) value));
    }
    if (value instanceof ByteBuffer) {
      byte[] bytes = new byte[((ByteBuffer) value).remaining()];
      ((ByteBuffer) value).duplicate().get(bytes);
      return NODES.objectNode().put("bytes", Base64.getEncoder().encodeToString(bytes));
    }
    return NODES.textNode(value.toString());
  }

  // ---- values of Iceberg

  private static Each table(JsonNode question) throws Exception {
    org.apache.iceberg.Schema schema = SchemaParser.fromJson(question.get("table").toString());
    Table table = (Table) Proxy.newProxyInstance(Reference.class.getClassLoader(), new Class<?>[] {Table.class},
        (proxy, method, args) -> method.getName().equals("schema") ? schema : Map.of());
    IcebergSinkConfig config = new IcebergSinkConfig(Map.of("topics", "t", "iceberg.tables", "db.t", "name", "n",
        "iceberg.catalog.type", "rest"));
    Class<?> kind = Class.forName("org.apache.iceberg.connect.data.RecordConverter");
    Constructor<?> constructor = kind.getDeclaredConstructor(Table.class, IcebergSinkConfig.class);
    constructor.setAccessible(true);
    Object converter = constructor.newInstance(table, config);
    Method convert = kind.getDeclaredMethod("convert", Object.class);
    convert.setAccessible(true);
    return record -> column(convert.invoke(converter, side(record, "value").value()), schema.asStruct());
  }

  private static JsonNode column(Object value, org.apache.iceberg.types.Type type) {
    if (value == null) {
      return NODES.nullNode();
    }
    switch (type.typeId()) {
      case STRUCT:
        ObjectNode fields = NODES.objectNode();
        for (Types.NestedField field : type.asStructType().fields()) {
          fields.set(field.name(), column(((Record) value).getField(field.name()), field.type()));
        }
        return NODES.objectNode().set("object", fields);
      case LIST:
        ArrayNode items = NODES.arrayNode();
        ((Collection<?>) value).forEach(item -> items.add(column(item, type.asListType().elementType())));
        return items;
      case MAP:
        Map<String, JsonNode> pairs = new TreeMap<>();
        ((Map<?, ?>) value).forEach((k, v) -> {
          JsonNode key = column(k, type.asMapType().keyType());
          pairs.put(key.toString(), NODES.arrayNode().add(key).add(column(v, type.asMapType().valueType())));
        });
        return NODES.objectNode().set("map", NODES.arrayNode().addAll(pairs.values()));
      default:
        return primitive(value);
    }
  }

  private static JsonNode primitive(Object value) {
    if (value instanceof LocalDate) {
      return NODES.numberNode(((LocalDate) value).toEpochDay());
    }
    if (value instanceof LocalTime) {
      return NODES.numberNode(((LocalTime) value).getLong(ChronoField.MICRO_OF_DAY));
    }
    if (value instanceof LocalDateTime) {
      return micros(((LocalDateTime) value).atOffset(ZoneOffset.UTC));
    }
    if (value instanceof OffsetDateTime) {
      return micros((OffsetDateTime) value);
    }
    if (value instanceof UUID) {
      return NODES.textNode(value.toString());
    }
    return plain(value);
  }

  private static JsonNode micros(OffsetDateTime value) {
    BigInteger seconds = BigInteger.valueOf(value.toEpochSecond()).multiply(BigInteger.valueOf(1_000_000));
    return NODES.numberNode(seconds.add(BigInteger.valueOf(value.get(ChronoField.MICRO_OF_SECOND))));
  }
}
