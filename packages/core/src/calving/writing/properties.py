"""Table properties that determine how data files are written, each declared once. The manual's table is made from this
file.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from calving.errors import ConfigError
from calving.wording import wrong_value

_MIB = 1024 * 1024
FORMAT = "write.format.default"
_METRICS = "write.metadata.metrics.column."
_BLOOM = "write.parquet.bloom-filter-enabled.column."
_BLOOM_FPP = "write.parquet.bloom-filter-fpp.column."

_LEVELS = {"zstd": range(-7, 23), "gzip": range(10), "brotli": range(12), "lz4": range(13), "snappy": range(0)}

BY_COLUMN = {
    f"{_METRICS}<column>": ("text", "", "Statistics of one column: `none`, `counts`, `truncate(N)` or `full`."),
    f"{_BLOOM}<column>": ("boolean", "`false`", "Whether files have a Bloom filter of the column (Parquet)."),
    f"{_BLOOM_FPP}<column>": ("number", "`0.01`", "Share of false positives of that Bloom filter."),
}
"""Properties of single columns: type, default and meaning."""

Lower = BeforeValidator(lambda value: value.lower() if isinstance(value, str) else value)
Mode = Annotated[str, Lower, Field(pattern=r"^(none|counts|full|truncate\([1-9][0-9]*\))$")]
Size = Annotated[int, Field(gt=0)]
Share = Annotated[float, Field(gt=0, lt=1)]


class WriteProperties(BaseModel):
    """A table's write properties, overridden by the sink's ``write-props``. Defaults are Iceberg's."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    file_format: Annotated[str, Lower] = Field(
        "parquet",
        alias=FORMAT,
        description="The format of data files: `parquet`, `orc` or `avro`; or the name of a writer of one of them that"
        " a package registers.",
    )
    target_bytes: Size = Field(
        512 * _MIB,
        alias="write.target-file-size-bytes",
        description="The size, in bytes, at which a task closes a file and starts the next.",
    )
    distribution: Annotated[Literal["none", "hash", "range"], Lower] = Field(
        "none",
        alias="write.distribution-mode",
        description="`none`: each task writes the rows that it has read. `hash`: a shuffle brings each partition to one"
        " task, which writes one file of it in a batch. `range`: the shuffle divides each partition by ranges of the"
        " table's sort order, so that the files of a batch do not overlap in it, and several tasks share a large"
        " partition. A table without a sort order gets `hash`. In every mode, the rows of a file are in the sort"
        " order.",
    )
    parquet_codec: Annotated[Literal["zstd", "gzip", "snappy", "lz4", "brotli", "uncompressed"], Lower] = Field(
        "zstd", alias="write.parquet.compression-codec", description="Compression of Parquet files."
    )
    parquet_level: int | None = Field(
        None,
        alias="write.parquet.compression-level",
        description="Compression level of Parquet files. Default: the codec's own.",
    )
    row_group_bytes: Size = Field(
        128 * _MIB,
        alias="write.parquet.row-group-size-bytes",
        description="Largest size of a row group before encoding, in bytes. A task holds a row group in memory until it"
        " is full, so the sink writes row groups of about 16 MiB, and of at most 32 MiB in a table with a sort order.",
    )
    row_group_rows: Size = Field(
        _MIB,
        alias="write.parquet.row-group-limit",
        description="Largest number of rows in a row group; Java's Iceberg has no such property.",
    )
    page_version: Annotated[Literal["v1", "v2", "1", "2"], Lower] = Field(
        "v1",
        alias="write.parquet.page-version",
        description="`v2`: pages of Parquet's second version, with delta encodings of whole numbers, dates, times and"
        " long text without a dictionary. Such files are smaller and take less CPU to write. Readers must know them:"
        " Iceberg's own readers for Spark do from 1.11 on, older ones only without vectorization.",
    )
    page_bytes: Size = Field(_MIB, alias="write.parquet.page-size-bytes", description="Size of a page, in bytes.")
    page_rows: Size = Field(
        20_000, alias="write.parquet.page-row-limit", description="Largest number of rows in a page."
    )
    dictionary_bytes: Size = Field(
        2 * _MIB, alias="write.parquet.dict-size-bytes", description="Size of a dictionary page, in bytes."
    )
    dictionaries: bool | None = Field(
        None,
        alias="parquet.enable.dictionary",
        description="Whether columns have dictionaries. Default: those whose values repeat in a file's first rows.",
    )
    bloom_bytes: Size = Field(
        _MIB, alias="write.parquet.bloom-filter-max-bytes", description="Largest size of a Bloom filter, in bytes."
    )
    orc_codec: Annotated[Literal["zlib", "zstd", "snappy", "lz4", "none"], Lower] = Field(
        "zlib", alias="write.orc.compression-codec", description="Compression of ORC files."
    )
    orc_strategy: Annotated[Literal["speed", "compression"], Lower] = Field(
        "speed", alias="write.orc.compression-strategy", description="Whether ORC compresses fast or well."
    )
    stripe_bytes: Size = Field(
        64 * _MIB, alias="write.orc.stripe-size-bytes", description="Size of an ORC stripe, in bytes."
    )
    orc_bloom_columns: str = Field(
        "", alias="write.orc.bloom.filter.columns", description="Columns with a Bloom filter, separated by commas."
    )
    orc_bloom_fpp: Share = Field(
        0.05, alias="write.orc.bloom.filter.fpp", description="Share of false positives of these Bloom filters."
    )
    orc_dictionary_share: Annotated[float, Field(ge=0, le=1)] = Field(
        0.8,
        alias="orc.dictionary.key.threshold",
        description="A text column gets a dictionary if at most this share of a stripe's values is distinct; `0`: no"
        " dictionary.",
    )
    avro_codec: Annotated[Literal["gzip", "zstd", "snappy", "uncompressed"], Lower] = Field(
        "gzip",
        alias="write.avro.compression-codec",
        description="Compression of Avro files. Where tasks run, zstd needs the package `backports.zstd`"
        " (`zstandard` with an older fastavro), and snappy needs `cramjam`.",
    )
    avro_level: int | None = Field(
        None,
        alias="write.avro.compression-level",
        description="Compression level of Avro files. Default: the codec's own.",
    )
    metrics: Mode | None = Field(
        None,
        alias="write.metadata.metrics.default",
        description="Statistics of columns: `none`, `counts`, `truncate(N)` (of text and bytes) or `full`."
        " Default: `truncate(16)`.",
    )
    metrics_columns: int = Field(
        100,
        alias="write.metadata.metrics.max-inferred-column-defaults",
        description="Without a default mode: number of columns that have statistics, the outer ones first.",
    )
    metrics_by_column: Mapping[str, Mode] = Field({}, alias=_METRICS, exclude=True)
    bloom_by_column: Mapping[str, bool] = Field({}, alias=_BLOOM, exclude=True)
    bloom_fpp_by_column: Mapping[str, Share] = Field({}, alias=_BLOOM_FPP, exclude=True)

    @staticmethod
    def of(properties: Mapping[str, str], table: str) -> WriteProperties:
        """The write properties of a table.

        :raises ConfigError: a property has an invalid value.
        """
        columns = {
            prefix: {n.removeprefix(prefix): text for n, text in properties.items() if n.startswith(prefix)}
            for prefix in (_METRICS, _BLOOM, _BLOOM_FPP)
        }
        try:
            properties_read = WriteProperties.model_validate({**properties, **columns})
        except ValidationError as error:
            first = error.errors()[0]
            where = "".join(str(part) for part in first["loc"])
            if first["type"] == "string_pattern_mismatch":
                why = "must be none, counts, truncate(N) or full"
            else:
                why = wrong_value(where, first)
            raise ConfigError(f"table {table}: property {where}: {why} (given: '{first['input']}')") from error
        for name, codec, level in (
            ("write.parquet.compression-level", properties_read.parquet_codec, properties_read.parquet_level),
            ("write.avro.compression-level", properties_read.avro_codec, properties_read.avro_level),
        ):
            if level is not None and codec in _LEVELS and level not in _LEVELS[codec]:
                raise ConfigError(f"table {table}: property {name} = {level}: {codec} has no such level")
        return properties_read
