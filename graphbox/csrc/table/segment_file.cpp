#include "table/segment_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <numeric>
#include <utility>

#include "errors/error.h"
#include "io/crc32c.h"
#include "io/file.h"

namespace graphbox {
namespace {

constexpr std::array<char, 8> kMagic = {'G', 'B', 'X', 'S', 'E', 'G', 'M', 'T'};
constexpr std::uint32_t kVersion = 1;
constexpr std::uint32_t kByteOrder = 0x01020304;
constexpr std::size_t kWrittenBytes = std::size_t{1} << 20;  // at a time, so that checksums are made in the cache
constexpr std::size_t kScannedBytes = BlockReader::kLargestStretchBytes - 2 * kBlockBytes;
constexpr std::uint64_t kScannedKeys = 65536;  // at a time
constexpr std::uint64_t kMostRows = std::uint64_t{1} << 40;
constexpr std::uint64_t kMostRecordBytes = std::uint64_t{4} << 20;

struct alignas(8) HeaderPage {
  std::array<char, 8> magic;
  std::uint32_t version;
  std::uint32_t byte_order;
  std::uint32_t header_bytes;
  std::uint32_t kind;
  std::uint64_t rows;
  std::uint64_t record_bytes;
  std::uint64_t layout_digest;
  std::uint64_t sequence;
  std::uint32_t keys_crc32c;
  std::uint32_t content_crc32c;
  std::uint32_t settings_bytes;
  std::array<char, 4024> settings;
  std::uint32_t checksum;  // of all before
};
static_assert(sizeof(HeaderPage) == kBlockBytes);
static_assert(SegmentInfo::kMostSettingsBytes <= sizeof(HeaderPage::settings));

bool is_aligned(const void* address) { return reinterpret_cast<std::uintptr_t>(address) % kBlockBytes == 0; }

std::uint64_t block_begin(std::uint64_t offset) { return offset / kBlockBytes * kBlockBytes; }
std::uint64_t block_end(std::uint64_t offset) { return block_begin(offset + kBlockBytes - 1); }

}  // namespace

std::uint64_t SegmentInfo::records_offset() const { return block_end(keys_offset() + rows * sizeof(std::int64_t)); }

std::uint64_t SegmentInfo::file_bytes() const {
  return kind == SegmentKind::kRows ? record_offset(rows) : keys_offset() + rows * sizeof(std::int64_t);
}

std::uint64_t layout_digest(const RowLayout& layout, Optimizer optimizer) {
  const std::array<std::uint64_t, 8> parts = {layout.dim,
                                              static_cast<std::uint64_t>(layout.value_type),
                                              layout.state_bytes,
                                              layout.has_accumulator ? 1U : 0U,
                                              layout.has_steps ? 1U : 0U,
                                              layout.has_counters ? 1U : 0U,
                                              sizeof(RowCounters),
                                              static_cast<std::uint64_t>(optimizer)};
  std::uint64_t digest = 0xCBF29CE484222325ULL;  // FNV-1a over whole numbers
  for (const std::uint64_t part : parts) {
    digest = (digest ^ part) * 0x100000001B3ULL;
  }
  return digest;
}

std::uint32_t record_checksum(std::int64_t key, const std::byte* record, std::uint64_t record_bytes) {
  return crc32c(crc32c(0, &key, sizeof key), record, record_bytes);
}

// --- Writing ---------------------------------------------------------------------------------------------------------

SegmentWriter::SegmentWriter(std::string path, SegmentInfo info)
    : path_(std::move(path)), temporary_(path_ + ".tmp-" + std::to_string(::getpid())), info_(std::move(info)) {
  const bool has_records = info_.kind == SegmentKind::kRows;
  if (info_.settings.size() > SegmentInfo::kMostSettingsBytes || has_records != (info_.record_bytes > 0) ||
      info_.record_bytes > kMostRecordBytes || info_.rows > kMostRows) {
    throw Error(ErrorKind::kUsage,
                "expected records of 1 to " + std::to_string(kMostRecordBytes) + " bytes (or a segment of keys), and " +
                    "settings of at most " + std::to_string(SegmentInfo::kMostSettingsBytes) + " bytes; received " +
                    std::to_string(info_.record_bytes) + " and " + std::to_string(info_.settings.size()),
                path_);
  }
  descriptor_ = ::open(temporary_.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (descriptor_ < 0) {
    throw_system_error("cannot create the file", temporary_);
  }
  direct_descriptor_ = ::open(temporary_.c_str(), O_RDWR | O_CLOEXEC | O_DIRECT);  // or -1
}

SegmentWriter::~SegmentWriter() {
  if (direct_descriptor_ >= 0) {
    ::close(direct_descriptor_);
  }
  if (descriptor_ >= 0) {
    ::close(descriptor_);
    ::unlink(temporary_.c_str());
  }
}

// Whole blocks at aligned places from aligned memory go past the page cache, the rest through it.
void SegmentWriter::write_at(const void* data, std::size_t bytes, std::uint64_t offset) {
  const std::size_t whole = bytes / kBlockBytes * kBlockBytes;
  if (direct_descriptor_ < 0 || whole == 0 || offset % kBlockBytes != 0 || !is_aligned(data)) {
    write_fully(descriptor_, data, bytes, offset, temporary_);
    start_writeback(descriptor_, offset, bytes);
    return;
  }
  const std::size_t written = write_past_cache(data, whole, offset);
  if (written < bytes) {
    write_fully(descriptor_, static_cast<const std::byte*>(data) + written, bytes - written, offset + written,
                temporary_);
  }
}

// Returns how much was written: less where something is wrong, which a write through the page cache tells better. Of a
// full disk or file, the system may say that no whole block fits: that the length is invalid.
std::size_t SegmentWriter::write_past_cache(const void* data, std::size_t bytes, std::uint64_t offset) const {
  std::size_t done = 0;
  while (done < bytes) {
    const ssize_t written = ::pwrite(direct_descriptor_, static_cast<const std::byte*>(data) + done, bytes - done,
                                     static_cast<off_t>(offset + done));
    if (written < 0 && errno == EINTR) {
      continue;
    }
    done += written > 0 ? static_cast<std::size_t>(written) : 0;
    if (written <= 0 || written % static_cast<ssize_t>(kBlockBytes) != 0) {
      break;
    }
  }
  return done;
}

void SegmentWriter::write(std::uint64_t first, const std::int64_t* keys, std::byte* records, std::uint64_t count) {
  if (first > info_.rows || count > info_.rows - first) {
    throw Error(ErrorKind::kFailure,
                "expected rows up to " + std::to_string(info_.rows) + ", received " + std::to_string(first) + " to " +
                    std::to_string(first + count),
                path_);
  }
  const std::size_t key_bytes = count * sizeof(std::int64_t);
  const std::uint32_t keys_checksum = crc32c(0, keys, key_bytes);
  std::uint32_t checksums = 0;
  write_at(keys, key_bytes, info_.keys_offset() + first * sizeof(std::int64_t));
  const std::uint64_t stride = info_.stride();
  // So many rows are whole blocks: what comes after them stays aligned.
  const std::uint64_t unit = kBlockBytes / std::gcd<std::uint64_t>(kBlockBytes, stride);
  const std::uint64_t step = std::max<std::uint64_t>(kWrittenBytes / std::max<std::uint64_t>(stride, 1) / unit, 1) * unit;
  for (std::uint64_t begin = 0; begin < count && stride > 0; begin += step) {
    const std::uint64_t end = std::min(begin + step, count);
    for (std::uint64_t i = begin; i < end; ++i) {
      std::byte* const record = records + i * stride;
      const std::uint32_t sum = record_checksum(keys[i], record, info_.record_bytes);
      std::memcpy(record + info_.record_bytes, &sum, sizeof sum);
      checksums = crc32c(checksums, &sum, sizeof sum);
    }
    write_at(records + begin * stride, (end - begin) * stride, info_.record_offset(first + begin));
  }
  const std::lock_guard lock(mutex_);
  written_.push_back({first, count, keys_checksum, checksums});
}

// All rows as one; they must have been written.
SegmentWriter::Batch SegmentWriter::joined_batches() {
  std::sort(written_.begin(), written_.end(), [](const Batch& a, const Batch& b) { return a.first < b.first; });
  Batch all{0, 0, 0, 0};
  for (const Batch& batch : written_) {
    if (batch.first != all.count) {
      break;
    }
    all.keys_crc32c = crc32c_joined(all.keys_crc32c, batch.keys_crc32c, batch.count * sizeof(std::int64_t));
    all.checksums_crc32c =
        crc32c_joined(all.checksums_crc32c, batch.checksums_crc32c, batch.count * sizeof(std::uint32_t));
    all.count += batch.count;
  }
  if (all.count != info_.rows) {
    throw Error(ErrorKind::kFailure,
                "expected " + std::to_string(info_.rows) + " rows, each once; there are " + std::to_string(all.count) +
                    " before the first gap or repetition",
                path_);
  }
  return all;
}

void SegmentWriter::commit(bool sync_folder) {
  auto page = std::make_unique<HeaderPage>();
  page->magic = kMagic;
  page->version = kVersion;
  page->byte_order = kByteOrder;
  page->header_bytes = sizeof(HeaderPage);
  page->kind = static_cast<std::uint32_t>(info_.kind);
  page->rows = info_.rows;
  page->record_bytes = info_.record_bytes;
  page->layout_digest = info_.layout_digest;
  page->sequence = info_.sequence;
  const Batch all = joined_batches();
  content_crc32c_ = info_.kind == SegmentKind::kRows ? all.checksums_crc32c : all.keys_crc32c;
  page->keys_crc32c = all.keys_crc32c;
  page->content_crc32c = content_crc32c_;
  page->settings_bytes = static_cast<std::uint32_t>(info_.settings.size());
  std::copy(info_.settings.begin(), info_.settings.end(), page->settings.begin());
  page->checksum = crc32c(0, page.get(), offsetof(HeaderPage, checksum));
  write_fully(descriptor_, page.get(), sizeof(HeaderPage), 0, temporary_);
  if (::ftruncate(descriptor_, static_cast<off_t>(info_.file_bytes())) != 0 || ::fdatasync(descriptor_) != 0) {
    throw_system_error("cannot make the file durable", temporary_);
  }
  if (std::rename(temporary_.c_str(), path_.c_str()) != 0) {
    throw_system_error("cannot move the file into place", path_);
  }
  ::close(descriptor_);
  descriptor_ = -1;
  if (sync_folder) {
    sync_folder_of(path_);
  }
}

// --- Reading ---------------------------------------------------------------------------------------------------------

SegmentReader::Header SegmentReader::read_header(const std::string& path, const std::string& repair) {
  const FileReader file(path);
  const auto refuse = [&](const std::string& message) { throw Error(ErrorKind::kFormat, message, path, repair); };
  if (file.bytes() < sizeof(HeaderPage)) {
    refuse("expected a segment, at least " + std::to_string(sizeof(HeaderPage)) + " bytes; the file has " +
           std::to_string(file.bytes()));
  }
  const auto page = std::make_unique<HeaderPage>();
  file.read(page.get(), sizeof(HeaderPage), 0);
  if (page->magic != kMagic) {
    refuse("expected a segment, which starts with GBXSEGMT; this file does not");
  }
  if (page->byte_order != kByteOrder) {
    refuse("the segment was written by a machine of the other byte order");
  }
  if (page->version != kVersion) {
    throw Error(ErrorKind::kFormat,
                "expected a segment of format version " + std::to_string(kVersion) + ", the file has version " +
                    std::to_string(page->version),
                path, "use the version of graphbox that wrote it");
  }
  const bool has_records = page->kind == static_cast<std::uint32_t>(SegmentKind::kRows);
  if (page->checksum != crc32c(0, page.get(), offsetof(HeaderPage, checksum)) ||
      page->header_bytes != sizeof(HeaderPage) || page->settings_bytes > SegmentInfo::kMostSettingsBytes ||
      (!has_records && page->kind != static_cast<std::uint32_t>(SegmentKind::kErasedKeys)) ||
      has_records != (page->record_bytes > 0) || page->rows > kMostRows || page->record_bytes > kMostRecordBytes) {
    refuse("the header of the segment is damaged (bytes 0 to " + std::to_string(sizeof(HeaderPage)) + ")");
  }
  Header header;
  header.info.kind = static_cast<SegmentKind>(page->kind);
  header.info.rows = page->rows;
  header.info.record_bytes = page->record_bytes;
  header.info.layout_digest = page->layout_digest;
  header.info.sequence = page->sequence;
  header.info.settings.assign(page->settings.data(), page->settings_bytes);
  header.keys_crc32c = page->keys_crc32c;
  header.content_crc32c = page->content_crc32c;
  return header;
}

SegmentReader::SegmentReader(const std::string& path, std::string repair)
    : SegmentReader(path, repair, read_header(path, repair)) {}

SegmentReader::SegmentReader(const std::string& path, std::string repair, Header header)
    : path_(path),
      repair_(std::move(repair)),
      info_(std::move(header.info)),
      keys_crc32c_(header.keys_crc32c),
      content_crc32c_(header.content_crc32c),
      file_(path, info_.file_bytes(), true, repair_) {}

void SegmentReader::read_keys(std::uint64_t first, std::uint64_t count, std::int64_t* keys) const {
  read_fully(file_.buffered_descriptor(), keys, count * sizeof(std::int64_t),
             info_.keys_offset() + first * sizeof(std::int64_t), path_);
}

void SegmentReader::scan_keys(const VisitKeys& visit) const {
  std::vector<std::int64_t> keys(std::min(info_.rows, kScannedKeys));
  std::uint32_t checksum = 0;
  for (std::uint64_t first = 0; first < info_.rows; first += kScannedKeys) {
    const std::uint64_t count = std::min(kScannedKeys, info_.rows - first);
    read_keys(first, count, keys.data());
    checksum = crc32c(checksum, keys.data(), count * sizeof(std::int64_t));
    visit(first, keys.data(), count);
  }
  if (checksum != keys_crc32c_) {
    throw Error(ErrorKind::kFormat,
                "the keys of the segment are damaged (bytes " + std::to_string(info_.keys_offset()) + " to " +
                    std::to_string(info_.keys_offset() + info_.rows * sizeof(std::int64_t)) + ")",
                path_, repair_);
  }
}

std::vector<std::int64_t> SegmentReader::keys() const {
  std::vector<std::int64_t> all(info_.rows);
  scan_keys([&](std::uint64_t first, const std::int64_t* keys, std::uint64_t count) {
    std::copy_n(keys, count, all.begin() + static_cast<std::ptrdiff_t>(first));
  });
  return all;
}

void SegmentReader::verify(std::uint64_t place, std::int64_t key, const std::byte* record) const {
  std::uint32_t sum = 0;
  std::memcpy(&sum, record + info_.record_bytes, sizeof sum);
  if (sum != record_checksum(key, record, info_.record_bytes)) {
    const std::uint64_t offset = info_.record_offset(place);
    throw Error(ErrorKind::kFormat,
                "the row of key " + std::to_string(key) + " is damaged (bytes " + std::to_string(offset) + " to " +
                    std::to_string(offset + info_.stride()) + ")",
                path_, repair_);
  }
}

void SegmentReader::scan(BlockReader& reader, std::uint64_t first, std::uint64_t count, const VisitRows& visit) const {
  if (info_.kind != SegmentKind::kRows || first > info_.rows || count > info_.rows - first) {
    throw Error(ErrorKind::kFailure, "expected rows of the segment, received " + std::to_string(first) + " to " +
                                         std::to_string(first + count), path_);
  }
  const std::uint64_t part = std::max<std::uint64_t>(kScannedBytes / info_.stride(), 1);
  std::vector<std::int64_t> keys(std::min(part, count));
  std::uint64_t next = first;
  reader.read(
      [&](Stretch& stretch) {
        if (next == first + count) {
          return false;
        }
        const std::uint64_t end = std::min(next + part, first + count);
        const std::uint64_t begin_byte = block_begin(info_.record_offset(next));
        const std::uint64_t end_byte = std::min(block_end(info_.record_offset(end)), info_.file_bytes());
        stretch = {&file_, begin_byte, static_cast<std::uint32_t>(end_byte - begin_byte), next};
        next = end;
        return true;
      },
      [&](const Stretch& stretch, const std::byte* bytes) {
        const std::uint64_t begin = stretch.tag;
        const std::uint64_t rows = std::min(part, first + count - begin);
        const std::byte* const records = bytes + (info_.record_offset(begin) - stretch.offset);
        read_keys(begin, rows, keys.data());
        for (std::uint64_t i = 0; i < rows; ++i) {
          verify(begin + i, keys[i], records + i * info_.stride());
        }
        visit(begin, keys.data(), records, rows);
      });
}

}  // namespace graphbox
