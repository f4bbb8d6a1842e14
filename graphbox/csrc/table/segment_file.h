// Segments: immutable files of rows, for the SSD tier of tables and for their checkpoints.
//
// A segment is a header page, the column of keys, and the block of records, each record followed by its checksum,
// which covers the key too: docs/formats/table-segments.md describes the bytes. So keys alone can be read quickly, one
// record can be read and verified by itself, and the whole can be read front to back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "io/block_file.h"
#include "io/block_reader.h"
#include "memory/buffer.h"
#include "table/optimizer.h"
#include "table/row_layout.h"

namespace graphbox {

enum class SegmentKind : std::uint32_t {
  kRows = 1,
  kErasedKeys = 2,  // keys without records: earlier segments may still hold rows of them
};

// Header of a segment.
struct SegmentInfo {
  static constexpr std::size_t kMostSettingsBytes = 3072;

  SegmentKind kind = SegmentKind::kRows;
  std::uint64_t rows = 0;
  std::uint64_t record_bytes = 0;   // without the checksum; 0 where there are keys alone
  std::uint64_t layout_digest = 0;  // of what a record holds: see layout_digest()
  std::uint64_t sequence = 0;       // of segments that hold the same key, the one with the largest number counts
  std::string settings;             // the caller's, at most kMostSettingsBytes

  // A record and its checksum: what records in memory and in the file are apart.
  std::uint64_t stride() const { return record_bytes == 0 ? 0 : record_bytes + sizeof(std::uint32_t); }
  std::uint64_t keys_offset() const { return kBlockBytes; }
  std::uint64_t records_offset() const;
  std::uint64_t record_offset(std::uint64_t place) const { return records_offset() + place * stride(); }
  std::uint64_t file_bytes() const;
};

// Tells records of different contents apart, for `layout_digest`.
std::uint64_t layout_digest(const RowLayout& layout, Optimizer optimizer);

// The checksum that follows the record of `key`.
std::uint32_t record_checksum(std::int64_t key, const std::byte* record, std::uint64_t record_bytes);

// Writes a segment beside `path`; commit() makes it durable and moves it into place. Without commit(), as after any
// error, nothing remains. Errors: DoesNotFit where the disk is full, NotFound without the folder, Failure otherwise.
class SegmentWriter {
 public:
  // Batches that begin at a multiple of this, in memory aligned to kBlockBytes (as every Buffer from 2 MiB on is), go
  // past the page cache, which is several times as fast. Others are right too.
  static constexpr std::uint64_t kAlignedRows = 4096;

  // Exactly info.rows rows must be written.
  SegmentWriter(std::string path, SegmentInfo info);
  SegmentWriter(const SegmentWriter&) = delete;
  SegmentWriter& operator=(const SegmentWriter&) = delete;
  ~SegmentWriter();

  const SegmentInfo& info() const { return info_; }

  // Of the checksums of all records, or keys where there are no others; after commit().
  std::uint32_t content_crc32c() const { return content_crc32c_; }

  // Writes rows first ... first + count - 1. `records` are info().stride() apart; their checksums are filled in here.
  // Null for a segment of keys alone. Thread safe, in any order; best in batches of a megabyte or more.
  void write(std::uint64_t first, const std::int64_t* keys, std::byte* records, std::uint64_t count);

  // Once, after all rows. With sync_folder = false the caller must call sync_folder_of(path) before relying on the
  // file: once for many segments.
  void commit(bool sync_folder = true);

 private:
  struct Batch {
    std::uint64_t first;
    std::uint64_t count;
    std::uint32_t keys_crc32c;
    std::uint32_t checksums_crc32c;  // of the records' checksums
  };

  void write_at(const void* data, std::size_t bytes, std::uint64_t offset);
  std::size_t write_past_cache(const void* data, std::size_t bytes, std::uint64_t offset) const;
  Batch joined_batches();

  std::string path_;
  std::string temporary_;
  SegmentInfo info_;
  std::uint32_t content_crc32c_ = 0;
  int descriptor_ = -1;
  int direct_descriptor_ = -1;  // where the file system takes it
  std::mutex mutex_;
  std::vector<Batch> written_;
};

// An open segment. Thread safe.
class SegmentReader {
 public:
  // Verifies header and length. A damaged, cut or foreign file is a Format error that names it. `repair`: what errors
  // tell the user to do about damage.
  SegmentReader(const std::string& path, std::string repair);

  const std::string& path() const { return path_; }
  const SegmentInfo& info() const { return info_; }

  // Identifies what the segment holds: the checksum of the checksums of its records in their order, or, of keys alone,
  // of these.
  std::uint32_t content_crc32c() const { return content_crc32c_; }

  // For stretches of a BlockReader: info().record_offset() says where records are.
  const BlockFile& file() const { return file_; }

  // Calls visit(first, keys, count) for the key column in order. The checksum covers the whole column: what was
  // visited is to be dropped when this throws.
  using VisitKeys = std::function<void(std::uint64_t first, const std::int64_t* keys, std::uint64_t count)>;
  void scan_keys(const VisitKeys& visit) const;
  std::vector<std::int64_t> keys() const;

  // The keys of some rows, not verified: what verify() says of a row is said of its key too.
  void read_keys(std::uint64_t first, std::uint64_t count, std::int64_t* keys) const;

  // Reads rows first ... first + count - 1 with many large reads in flight, and calls visit(first, keys, records,
  // count) for parts of them in any order; records are info().stride() apart and verified, keys too.
  using VisitRows =
      std::function<void(std::uint64_t first, const std::int64_t* keys, const std::byte* records, std::uint64_t count)>;
  void scan(BlockReader& reader, std::uint64_t first, std::uint64_t count, const VisitRows& visit) const;

  // Throws a Format error naming file, place and key unless the record, with its checksum behind it, is whole.
  void verify(std::uint64_t place, std::int64_t key, const std::byte* record) const;

 private:
  struct Header {
    SegmentInfo info;
    std::uint32_t keys_crc32c;
    std::uint32_t content_crc32c;
  };

  SegmentReader(const std::string& path, std::string repair, Header header);
  static Header read_header(const std::string& path, const std::string& repair);

  std::string path_;
  std::string repair_;
  SegmentInfo info_;
  std::uint32_t keys_crc32c_;
  std::uint32_t content_crc32c_;
  BlockFile file_;
};

}  // namespace graphbox
