// Tables in files: docs/formats/table.md describes the bytes.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <memory>
#include <mutex>

#include "errors/error.h"
#include "io/crc32c.h"
#include "io/file.h"
#include "table/table.h"

namespace graphbox {
namespace {

constexpr std::array<char, 8> kMagic = {'G', 'B', 'X', 'T', 'A', 'B', 'L', 'E'};
constexpr std::array<char, 8> kEnd = {'G', 'B', 'X', 'T', 'E', 'N', 'D', '.'};
constexpr std::uint32_t kVersion = 1;
constexpr std::uint32_t kByteOrder = 0x01020304;
constexpr std::uint64_t kPrefetchedKeys = 16;

struct FileHeader {
  std::array<char, 8> magic;
  std::uint32_t version;
  std::uint32_t byte_order;
  std::uint32_t header_bytes;
  std::uint32_t optimizer;
  std::uint64_t dim;
  std::uint64_t rows;
  std::uint64_t row_bytes;
  std::uint64_t block_rows;
  std::uint64_t seed;
  float lr;
  float eps;
  float init_scale;
  float initial_accumulator;
  float beta1;
  float beta2;
  float beta;
  float l1;
  float l2;
  float weight_decay;
  float lowest;
  float highest;
  float clip_norm;
  float clip_value;
  std::uint32_t flags;
  std::uint32_t checksum;  // of all before
};
static_assert(sizeof(FileHeader) == 128);

constexpr std::uint32_t kDecoupledWeightDecay = 1;
constexpr std::uint32_t kMeanGradient = 2;
constexpr std::uint32_t kFloat16 = 4;
constexpr std::uint32_t kSkipNonfinite = 8;

void write_optimizer(const OptimizerConfig& config, FileHeader& header) {
  header.optimizer = static_cast<std::uint32_t>(config.kind);
  header.lr = config.lr;
  header.eps = config.eps;
  header.initial_accumulator = config.initial_accumulator;
  header.beta1 = config.beta1;
  header.beta2 = config.beta2;
  header.beta = config.beta;
  header.l1 = config.l1;
  header.l2 = config.l2;
  header.weight_decay = config.weight_decay;
  header.lowest = config.lowest;
  header.highest = config.highest;
  header.clip_norm = config.clip_norm;
  header.clip_value = config.clip_value;
  header.flags = (config.decoupled_weight_decay ? kDecoupledWeightDecay : 0) |
                 (config.mean_gradient ? kMeanGradient : 0);
}

OptimizerConfig optimizer_of(const FileHeader& header) {
  OptimizerConfig config;
  config.kind = static_cast<Optimizer>(header.optimizer);
  config.lr = header.lr;
  config.eps = header.eps;
  config.initial_accumulator = header.initial_accumulator;
  config.beta1 = header.beta1;
  config.beta2 = header.beta2;
  config.beta = header.beta;
  config.l1 = header.l1;
  config.l2 = header.l2;
  config.weight_decay = header.weight_decay;
  config.lowest = header.lowest;
  config.highest = header.highest;
  config.clip_norm = header.clip_norm;
  config.clip_value = header.clip_value;
  config.decoupled_weight_decay = (header.flags & kDecoupledWeightDecay) != 0;
  config.mean_gradient = (header.flags & kMeanGradient) != 0;
  return config;
}

[[noreturn]] void throw_format(const FileReader& file, const std::string& message) {
  throw Error(ErrorKind::kFormat, message, file.path(), "restore the file from a copy, or train again");
}

std::uint64_t blocks_of(const FileHeader& header) { return (header.rows + header.block_rows - 1) / header.block_rows; }

FileHeader read_header(const FileReader& file) {
  FileHeader header{};
  if (file.bytes() < sizeof header + kEnd.size()) {
    throw_format(file, "expected an embedding table, at least " + std::to_string(sizeof header + kEnd.size()) +
                           " bytes; the file has " + std::to_string(file.bytes()));
  }
  file.read(&header, sizeof header, 0);
  if (header.magic != kMagic) {
    throw_format(file, "expected an embedding table, which starts with GBXTABLE; this file does not");
  }
  if (header.byte_order != kByteOrder) {
    throw_format(file, "the table was written by a machine of the other byte order");
  }
  if (header.version != kVersion) {
    throw Error(ErrorKind::kFormat,
                "expected a table of format version " + std::to_string(kVersion) + ", the file has version " +
                    std::to_string(header.version),
                file.path(), "use the version of graphbox that wrote it");
  }
  const std::uint32_t checksum = crc32c(0, &header, offsetof(FileHeader, checksum));
  if (checksum != header.checksum || header.header_bytes != sizeof header || header.block_rows == 0 || header.row_bytes == 0 ||
      header.optimizer >= kOptimizers) {
    throw_format(file, "the header of the table is damaged (bytes 0 to " + std::to_string(sizeof header) + ")");
  }
  return header;
}

// Bytes of a row in a file: key, row-wise state, values, state of each value.
std::uint64_t row_bytes_of(const Slab& slab) {
  return sizeof(std::int64_t) + slab.layout().record_bytes();
}

// Rows between checksums: 4 MiB of them, 4,096 at most.
std::uint64_t block_rows_for(std::uint64_t row_bytes) {
  return std::clamp<std::uint64_t>((std::uint64_t{4} << 20) / row_bytes, 1, 4096);
}

void check_size(const FileReader& file, const FileHeader& header) {
  const Uint128 expected = static_cast<Uint128>(header.rows) * header.row_bytes +
                           blocks_of(header) * sizeof(std::uint32_t) + sizeof header + kEnd.size();
  if (expected != file.bytes()) {
    const bool shorter = file.bytes() < expected;
    throw_format(file, std::string(shorter ? "the table is cut off" : "there are bytes after the table") + ": " +
                           std::to_string(header.rows) + " rows take " +
                           std::to_string(static_cast<std::uint64_t>(expected)) + " bytes, the file has " +
                           std::to_string(file.bytes()));
  }
}

// A block in a file: keys, then records.
class Block {
 public:
  Block(const Slab& slab, std::byte* data, std::uint64_t rows)
      : slab_(slab),
        keys_(reinterpret_cast<std::int64_t*>(data)),
        records_(data + rows * sizeof(std::int64_t)) {}

  std::int64_t key(std::uint64_t place) const { return keys_[place]; }

  void take(std::uint32_t row, std::uint64_t place) {
    keys_[place] = slab_.key(row);
    slab_.write_record(row, records_ + place * slab_.layout().record_bytes());
  }

  void give(std::uint32_t row, std::uint64_t place) const {
    slab_.key(row) = keys_[place];
    slab_.read_record(row, records_ + place * slab_.layout().record_bytes());
  }

 private:
  const Slab& slab_;
  std::int64_t* keys_;
  std::byte* records_;
};

}  // namespace

void Table::save(const std::string& path) const {
  const std::shared_lock lock(mutex_);
  FileHeader header{};
  header.magic = kMagic;
  header.version = kVersion;
  header.byte_order = kByteOrder;
  header.header_bytes = sizeof header;
  write_optimizer(config_.optimizer, header);
  header.flags |= (config_.value_type == ValueType::kFloat16 ? kFloat16 : 0) | (config_.skip_nonfinite ? kSkipNonfinite : 0);
  header.dim = config_.dim;
  header.rows = live_rows();
  header.row_bytes = row_bytes_of(slab_);
  header.block_rows = block_rows_for(header.row_bytes);
  header.seed = config_.seed;
  header.init_scale = config_.init_scale;
  header.checksum = crc32c(0, &header, offsetof(FileHeader, checksum));

  AtomicFileWriter file(path);
  file.write(&header, sizeof header);
  PooledArray<std::byte> bytes(static_cast<std::int64_t>(header.block_rows * header.row_bytes));
  std::uint32_t row = 0;
  for (std::uint64_t begin = 0; begin < header.rows; begin += header.block_rows) {
    const std::uint64_t count = std::min(header.block_rows, header.rows - begin);
    Block block(slab_, bytes.data(), count);
    for (std::uint64_t place = 0; place < count; ++row) {
      if (is_live(row)) {
        block.take(row, place++);
      }
    }
    const std::uint32_t checksum = crc32c(0, bytes.data(), count * header.row_bytes);
    file.write(bytes.data(), count * header.row_bytes);
    file.write(&checksum, sizeof checksum);
  }
  file.write(kEnd.data(), kEnd.size());
  file.commit();
}

std::unique_ptr<Table> Table::load(const std::string& path, std::uint64_t memory_bytes) {
  const FileReader file(path);
  const FileHeader header = read_header(file);
  check_size(file, header);
  TableConfig config;
  config.dim = header.dim;
  config.value_type = (header.flags & kFloat16) != 0 ? ValueType::kFloat16 : ValueType::kFloat32;
  config.skip_nonfinite = (header.flags & kSkipNonfinite) != 0;
  config.optimizer = optimizer_of(header);
  config.init_scale = header.init_scale;
  config.seed = header.seed;
  config.memory_bytes = memory_bytes;
  auto table = std::make_unique<Table>(config);
  if (row_bytes_of(table->slab_) != header.row_bytes || block_rows_for(header.row_bytes) != header.block_rows) {
    throw_format(file, "the header of the table is damaged: blocks of " + std::to_string(header.block_rows) +
                           " rows of " + std::to_string(header.row_bytes) + " bytes do not fit dim " +
                           std::to_string(header.dim));
  }
  table->make_room(header.rows);
  std::uint64_t offset = sizeof header;
  for (std::uint64_t begin = 0; begin < header.rows; begin += header.block_rows) {
    offset = table->load_block(file, offset, std::min(header.block_rows, header.rows - begin));
  }
  std::array<char, 8> ending{};
  file.read(ending.data(), ending.size(), offset);
  if (ending != kEnd) {
    throw_format(file, "the last bytes of the table are damaged");
  }
  return table;
}

// Reads the next `count` rows and files them; returns where the block after them starts.
std::uint64_t Table::load_block(const FileReader& file, std::uint64_t offset, std::uint64_t count) {
  const std::uint64_t size = count * row_bytes_of(slab_);
  PooledArray<std::byte> bytes(static_cast<std::int64_t>(size));
  file.read(bytes.data(), size, offset);
  std::uint32_t expected = 0;
  file.read(&expected, sizeof expected, offset + size);
  const std::uint32_t checksum = crc32c(0, bytes.data(), size);
  const std::string rows = "rows " + std::to_string(live_rows()) + " to " + std::to_string(live_rows() + count - 1);
  if (checksum != expected) {
    throw_format(file, rows + " of the table are damaged: their checksum is " + std::to_string(checksum) +
                           ", the file says " + std::to_string(expected));
  }
  const Block block(slab_, bytes.data(), count);
  for (std::uint64_t place = 0; place < count; ++place) {
    if (place + kPrefetchedKeys < count) {
      index_.prefetch(index_.hash(block.key(place + kPrefetchedKeys)));
    }
    const std::int64_t key = block.key(place);
    if (find(key) != kNoRow) {
      throw_format(file, rows + " of the table are damaged: key " + std::to_string(key) + " appears twice");
    }
    const std::uint32_t row = take_row();
    block.give(row, place);
    index_.insert(key, index_.hash(key), row);
  }
  return offset + size + sizeof expected;
}

}  // namespace graphbox
