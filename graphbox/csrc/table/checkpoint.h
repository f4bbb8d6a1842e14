// The parts of a checkpoint: segments of rows, or of the keys that a delta erases. docs/formats/table.md.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "random/philox.h"
#include "table/change_tracker.h"
#include "table/row_contents.h"
#include "table/row_layout.h"
#include "table/segment_file.h"

namespace graphbox {

// Hint of errors about a damaged part.
inline constexpr const char* kRestoreCheckpoint = "restore the checkpoint from a copy, or load another one";

// As the manifest of the checkpoint lists it.
struct CheckpointPart {
  std::string name;
  std::uint64_t rows = 0;       // or erased keys
  std::uint64_t live_rows = 0;  // so many of them count
  std::uint64_t bytes = 0;
  std::uint32_t crc32c = 0;  // of the checksums of the records in their order; of erased keys, of these
  bool is_erased = false;
  std::vector<std::uint64_t> live = {};  // where not all of them count: a bit for each

  bool counts(std::uint64_t place) const { return live.empty() || (live[place / 64] >> (place % 64) & 1) != 0; }
};


struct CheckpointRequest {
  std::string folder;
  RowContents contents = RowContents::kRecords;
  int chain = -1;          // whose changes are taken; -1: none's
  bool is_delta = false;   // only these changes are written
  int threads = 1;
};

// A checkpoint whose files are durable, but for the folder that they are in.
struct WrittenCheckpoint {
  std::vector<CheckpointPart> parts;
  std::vector<std::byte> policy_state;  // of the moment of the rows, as is what follows
  float lr = 0;
  std::uint64_t changes = 0;
  std::uint64_t linked_files = 0;  // segments of the table that are the checkpoint's, too
  std::uint64_t copied_files = 0;  // and those that could not be, but were worth it
};

// The tables that a checkpoint is divided among have the keys for which shard_of() says their number.
struct Shard {
  std::uint64_t number = 0;
  std::uint64_t count = 1;
};

std::uint64_t shard_of(std::int64_t key, std::uint64_t shards);

// Format of the records of a part.
struct PartRecords {
  RowContents values = RowContents::kFloat32;  // how the values are kept that a record begins with
  std::uint64_t bytes = 0;                     // of a record
  std::uint64_t digest = 0;                    // of what is in it
};
PartRecords records_of(const RowLayout& layout, Optimizer optimizer, RowContents contents);

// Opens a part, and checks it against what the manifest says.
std::unique_ptr<SegmentReader> open_part(const std::string& path, const CheckpointPart& part,
                                         const PartRecords& records);

// The row's values, as a checkpoint for serving keeps them.
void encode_row(std::int64_t key, const std::vector<float>& values, RowContents contents, std::byte* record);

std::string part_name(const char* kind, std::uint64_t number);

// Adds up the checksum of a part from pieces that come in any order.
class PartChecksum {
 public:
  // `count` numbers of `bytes` bytes each, from place `first` on.
  void add(std::uint64_t first, std::uint64_t count, std::size_t bytes, std::uint32_t crc32c);
  std::uint32_t value();

 private:
  struct Piece {
    std::uint64_t first;
    std::uint64_t bytes;
    std::uint32_t crc32c;
  };
  std::vector<Piece> pieces_;
};

// Of the checksums that stand behind `count` records.
std::uint32_t checksum_of_records(const std::byte* records, std::uint64_t stride, std::uint64_t count);

[[noreturn]] void throw_other_content(const std::string& path, std::uint32_t received, std::uint32_t expected);

}  // namespace graphbox
