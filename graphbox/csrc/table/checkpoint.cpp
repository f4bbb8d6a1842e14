#include "table/checkpoint.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdio>

#include "errors/error.h"
#include "io/crc32c.h"
#include "io/file.h"

namespace graphbox {

// The finaliser of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014), scaled to the number of shards: never to be changed,
// for it decides where keys are.
std::uint64_t shard_of(std::int64_t key, std::uint64_t shards) {
  auto mixed = static_cast<std::uint64_t>(key) + 0x9E3779B97F4A7C15ULL;
  mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9ULL;
  mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EBULL;
  mixed ^= mixed >> 31;
  return static_cast<std::uint64_t>(static_cast<Uint128>(mixed) * shards >> 64);
}

PartRecords records_of(const RowLayout& layout, Optimizer optimizer, RowContents contents) {
  if (contents == RowContents::kRecords) {
    const bool is_half = layout.value_type == ValueType::kFloat16;
    return {is_half ? RowContents::kFloat16 : RowContents::kFloat32, layout.record_bytes(),
            layout_digest(layout, optimizer)};
  }
  const std::uint64_t digest = (static_cast<std::uint64_t>(layout.dim) << 8) | static_cast<std::uint64_t>(contents);
  return {contents, served_bytes(layout.dim, contents), digest};
}

namespace {

// The keys are followed by zeros up to the block where the records begin: with them, no byte can change unnoticed.
void check_filling(const SegmentReader& segment) {
  const SegmentInfo& info = segment.info();
  const std::uint64_t begin = info.keys_offset() + info.rows * sizeof(std::int64_t);
  if (info.kind != SegmentKind::kRows || begin >= info.records_offset()) {
    return;
  }
  std::array<std::byte, kBlockBytes> bytes;
  const std::size_t count = info.records_offset() - begin;
  read_fully(segment.file().buffered_descriptor(), bytes.data(), count, begin, segment.path());
  if (std::any_of(bytes.data(), bytes.data() + count, [](std::byte byte) { return byte != std::byte{0}; })) {
    throw Error(ErrorKind::kFormat,
                "bytes " + std::to_string(begin) + " to " + std::to_string(info.records_offset()) +
                    " of the segment are damaged: they must be zero",
                segment.path(), kRestoreCheckpoint);
  }
}

}  // namespace

std::unique_ptr<SegmentReader> open_part(const std::string& path, const CheckpointPart& part,
                                         const PartRecords& records) {
  auto segment = std::make_unique<SegmentReader>(path, kRestoreCheckpoint);
  const SegmentInfo& info = segment->info();
  const bool is_same =
      part.is_erased ? info.kind == SegmentKind::kErasedKeys
                     : info.kind == SegmentKind::kRows && info.record_bytes == records.bytes &&
                           info.layout_digest == records.digest;
  if (!is_same || info.rows != part.rows || info.file_bytes() != part.bytes) {
    throw Error(ErrorKind::kFormat,
                "expected the part that the manifest lists, " + std::to_string(part.rows) + " rows in " +
                    std::to_string(part.bytes) + " bytes; the file has " + std::to_string(info.rows) + " in " +
                    std::to_string(info.file_bytes()) + (is_same ? "" : ", of another kind"),
                path, kRestoreCheckpoint);
  }
  check_filling(*segment);
  std::uint64_t live_rows = part.live.empty() ? part.rows : 0;
  for (const std::uint64_t word : part.live) {
    live_rows += static_cast<std::uint64_t>(std::popcount(word));
  }
  const bool fits = part.live.empty() || part.live.size() == (part.rows + 63) / 64;
  if (live_rows != part.live_rows || !fits || (!part.live.empty() && part.live.back() >> (part.rows - 1) % 64 > 1)) {
    throw Error(ErrorKind::kFormat,
                "expected a bit for each of the " + std::to_string(part.rows) + " rows, " +
                    std::to_string(part.live_rows) + " of them set; received " + std::to_string(live_rows) + " in " +
                    std::to_string(part.live.size() * sizeof(std::uint64_t)) + " bytes",
                path, kRestoreCheckpoint);
  }
  return segment;
}

std::string part_name(const char* kind, std::uint64_t number) {
  std::array<char, 64> name;
  std::snprintf(name.data(), name.size(), "%s-%05llu.segment", kind, static_cast<unsigned long long>(number));
  return name.data();
}

void encode_row(std::int64_t key, const std::vector<float>& values, RowContents contents, std::byte* record) {
  if (!encode_values(values, contents, record)) {
    throw Error(ErrorKind::kData, "the row holds NaN or infinity, which cannot be saved for serving as this type",
                "key " + std::to_string(key), "save float32 rows, or erase the key");
  }
}

void PartChecksum::add(std::uint64_t first, std::uint64_t count, std::size_t bytes, std::uint32_t crc32c) {
  pieces_.push_back({first, count * bytes, crc32c});
}

std::uint32_t PartChecksum::value() {
  std::sort(pieces_.begin(), pieces_.end(), [](const Piece& a, const Piece& b) { return a.first < b.first; });
  std::uint32_t checksum = 0;
  for (const Piece& piece : pieces_) {
    checksum = crc32c_joined(checksum, piece.crc32c, piece.bytes);
  }
  return checksum;
}

std::uint32_t checksum_of_records(const std::byte* records, std::uint64_t stride, std::uint64_t count) {
  std::uint32_t checksum = 0;
  for (std::uint64_t i = 1; i <= count; ++i) {
    checksum = crc32c(checksum, records + i * stride - sizeof(std::uint32_t), sizeof(std::uint32_t));
  }
  return checksum;
}

void throw_other_content(const std::string& path, std::uint32_t received, std::uint32_t expected) {
  throw Error(ErrorKind::kFormat,
              "the part is whole, but not the one the manifest lists: its checksum is " + std::to_string(received) +
                  ", the manifest says " + std::to_string(expected),
              path, kRestoreCheckpoint);
}

}  // namespace graphbox
